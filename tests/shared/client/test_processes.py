"""A client in another process, after it was closed, and in another event loop."""

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.client import SQLEnvClient
from shared.client.sync import SyncSQLEnvClient
from shared.server_process import running_server
from tests.shared.client.fake_server import FakeServer

ROOT = Path(__file__).parents[3]
linux = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@pytest.fixture(scope="module")
def url(tiny_data: Path) -> Iterator[str]:
    with running_server(tiny_data, "--workers", "1") as server:
        yield server.url


def in_fork(call: Callable[[], Any]) -> Any:
    """Return what `call` returns, or the text of its error, in a forked process."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def run() -> None:
        try:
            send.send(call())
        except BaseException as error:
            send.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    try:
        assert receive.poll(20), "the child waits without end"
        return receive.recv()
    finally:
        child.kill()
        child.join()


@linux
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_a_synchronous_client_opens_its_own_connections(url):
    with SQLEnvClient(url).sync() as client:
        first = client.reset(seed=1)

        def play() -> list[str]:
            own = client.reset(seed=1)
            client.step(own.episode_id, f"DESCRIBE: {own.observation.tables[0]}")
            step = client.step(first.episode_id, f"DESCRIBE: {own.observation.tables[0]}")
            return step.observation.action_history

        history = in_fork(play)
        assert history == [f"DESCRIBE: {first.observation.tables[0]}"]
        assert client.state(first.episode_id).step_count == 1


FORKED = """
import os, sys, threading
from shared.client import SQLEnvClient

with SQLEnvClient(sys.argv[1]).sync() as client:
    client.metadata()
    child = os.fork()
    if child == 0 and sys.argv[2] == "used":
        threads = [threading.Thread(target=client.metadata) for _ in range(4)]
        for thread in [*threads, *threads]:
            thread.join() if thread.ident else thread.start()
        print(sum("portal" in thread.name for thread in threading.enumerate()))
if child:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@linux
@pytest.mark.parametrize(("used", "printed"), [("used", "1\n0\n"), ("unused", "0\n")])
def test_a_fork_leaves_its_with_block_and_ends(url, used, printed):
    # from Python 3.12 on, forking with threads is a warning
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, url, used]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.stdout, done.stderr) == (printed, "")


@linux
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_of_an_asynchronous_client_says_what_to_do(url):
    async def main() -> str:
        async with SQLEnvClient(url) as client:
            await client.metadata()
            return str(in_fork(lambda: asyncio.run(client.metadata())))

    assert "RuntimeError: this client was opened in another process" in asyncio.run(main())


def test_another_event_loop_is_refused():
    client = FakeServer().client()
    asyncio.run(client.metadata())
    for call in (client.metadata, client.aclose):
        with pytest.raises(RuntimeError, match="another event loop: open one of its own"):
            asyncio.run(call())


def test_a_pickle_has_its_own_connections(url):
    with SQLEnvClient(url).sync() as client:
        copy: SyncSQLEnvClient = pickle.loads(pickle.dumps(client))
        assert copy.metadata() == client.metadata()
        copy.__exit__(None, None, None)
    closed: SyncSQLEnvClient = pickle.loads(pickle.dumps(client))
    with pytest.raises(RuntimeError, match="not open; use it inside 'with'"):
        closed.metadata()


def test_a_closed_client_is_opened_again_or_says_what_to_do(url):
    client = SQLEnvClient(url).sync()
    for _ in range(2):
        with client:
            assert client.metadata().name == "sqlenv"
            with pytest.raises(RuntimeError, match="is open already"):
                client.__enter__()
            assert client.metadata().name == "sqlenv"
    with pytest.raises(RuntimeError, match="not open"):
        client.metadata()


async def test_an_asynchronous_client_is_opened_once(url):
    client = SQLEnvClient(url)
    async with client:
        with pytest.raises(RuntimeError, match="more than once"):
            await client.__aenter__()
        assert (await client.metadata()).name == "sqlenv"
    with pytest.raises(RuntimeError, match="closed"):
        async with client:
            pass


INTERRUPTED = """
import os, signal, sys, threading
from shared.client import SQLEnvClient

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
with SQLEnvClient(sys.argv[1]).sync() as client:
    episode = client.reset(seed=1).episode_id
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        client.step(episode, f"QUERY: {endless}")
    except KeyboardInterrupt:
        print(len(client.step(episode, "QUERY: SELECT 2").observation.action_history))
"""


@linux
def test_ctrl_c_cancels_the_call_under_way(url):
    command = [sys.executable, "-c", INTERRUPTED, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stdout == "2\n", done.stderr
