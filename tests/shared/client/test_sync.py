"""The client without `await`."""

import threading
import time

import pytest

from shared.client import SQLEnvClient
from shared.client.sync import SyncSQLEnvClient
from tests.shared.client.fake_server import FakeServer, reply

pytestmark = pytest.mark.filterwarnings("error")


async def test_the_sync_client_works_inside_a_running_loop() -> None:
    with FakeServer().client().sync() as client:
        assert client.reset(episode_id="e").observation.step_count == 0


def test_ctrl_c_does_not_wait_for_the_calls_of_other_threads() -> None:
    server = FakeServer()
    server.faults.extend([reply(503, b"", {"Retry-After": "30"})] * 9)
    ended: list[BaseException] = []

    def call(client: SyncSQLEnvClient) -> None:
        try:
            client.reset(episode_id="e")
        except BaseException as error:
            ended.append(error)

    def interrupted() -> None:
        with server.client().sync() as client:
            threading.Thread(target=call, args=[client], daemon=True).start()
            while len(server.faults) == 9:
                time.sleep(0.005)
            raise KeyboardInterrupt

    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    while not ended:
        time.sleep(0.005)
    assert time.perf_counter() - started < 5


def test_the_sync_and_the_async_client_have_the_same_members() -> None:
    async_names = {name for name in dir(SQLEnvClient) if not name.startswith("_")} - {
        "sync",
        "aclose",
    } | {"stats"}
    sync_names = {name for name in vars(SyncSQLEnvClient) if not name.startswith("_")}
    assert sync_names - async_names == {"start_step"}  # a task, for code with an event loop
    assert async_names <= sync_names


def test_a_step_is_started_without_waiting_and_given_up() -> None:
    server = FakeServer()
    with server.client().sync() as client:
        client.reset(episode_id="e")
        assert client.start_step("e", "DESCRIBE: t").result().observation.step_count == 1
        server.faults.extend([reply(503, b"", {"Retry-After": "30"})] * 9)
        step = client.start_step("e", "DESCRIBE: u")
        while len(server.faults) == 9:
            time.sleep(0.005)
        assert not step.done()
        assert step.cancel()
        server.faults.clear()
        history = client.step("e", "DESCRIBE: v").observation.action_history
        assert history == ["DESCRIBE: t", "DESCRIBE: u", "DESCRIBE: v"]
