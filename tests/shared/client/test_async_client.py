"""The public calls of the client: playing, servers, and closing; and those without `await`."""

import asyncio
import gc
import gzip
import threading
import time
from copy import copy
from typing import Any

import httpx
import pytest

from shared.actions import ActionType, SQLAction
from shared.client import ClientLimits, SQLEnvClient
from shared.client.sync import SyncSQLEnvClient
from shared.errors import (
    Behind,
    Conflict,
    NotReady,
    ServerUnreachable,
    SQLEnvError,
    Unauthorized,
    UnknownEpisode,
    WrongAddress,
)
from tests.shared.client.fake_server import (
    FakeServer,
    client_of,
    drive,
    dropped,
    history,
    playing,
    reply,
)

pytestmark = pytest.mark.filterwarnings("error")


# -- playing


async def test_an_episode_from_reset_to_answer():
    async with playing() as (_, client):
        first = await client.reset(question_id="q1", step_budget=3)
        assert first.info.question_id == "q1"
        assert first.observation.budget_remaining == 3
        assert client.open_episodes == [first.episode_id]
        action = SQLAction(action_type=ActionType.DESCRIBE, argument="t")
        reply = await client.step(first.episode_id, action)
        assert (reply.observation.result, reply.reward) == ("played DESCRIBE: t", -0.02)
        assert (await client.state(first.episode_id)).action_history == ["DESCRIBE: t"]
        assert (await client.step(first.episode_id, "ANSWER: 42")).done
        assert client.open_episodes == []  # ended episodes are not kept
        assert client.stats.steps == 2
        assert client.stats.retries == client.stats.rebuilds == 0


async def test_a_step_ahead_of_the_episode_is_sent_once():
    """The server refuses it, or answers it if another client has played the steps before it."""
    async with playing("e", "f") as (server, client), server.client() as other:
        with pytest.raises(Behind):
            await client.step("e", "SAMPLE: t", step=3)
        await other.step("e", "SAMPLE: t")
        assert history(await client.step("e", "SAMPLE: u", step=1)) == ["SAMPLE: t", "SAMPLE: u"]
        assert client.stats.retries == client.stats.rebuilds == 0
        server.item_errors["f"] = [NotReady("not yet", retry_after_s=0)]
        both = [client.step("f", "SAMPLE: t", step=step) for step in (0, 1)]
        # the second waits for the first
        assert [len(history(one)) for one in await asyncio.gather(*both)] == [1, 2]


async def test_every_reset_option_reaches_the_server():
    async with playing() as (server, client):
        seen: list[dict[str, Any]] = []
        play = server.reset
        server.reset = lambda item: seen.append(item) or play(item)  # type: ignore[method-assign, func-returns-value]
        options: dict[str, Any] = {
            "split": "train",
            "difficulty": ("easy", "medium"),
            "db_id": "d",
            "seed": 0,
            "step_budget": 4,
            "answer_form": "sql",
            "rewards": "end",
            "explain": ("empty", "values"),
            "episode_id": "e1",
        }
        await client.reset(**options)
        query = SQLAction(action_type=ActionType.QUERY, argument="x")
        forked = await client.reset(question_id="q", actions=["SAMPLE: t", query])
        lists = {"difficulty": ["easy", "medium"], "explain": ["empty", "values"]}
        assert seen[0] == options | lists
        assert seen[1]["actions"] == history(forked) == ["SAMPLE: t", "QUERY: x"]


async def test_steps_of_one_episode_keep_their_order():
    async with playing("e") as (server, client):
        server.delay_s = 0.002
        replies = await client.step_many(("e", f"QUERY: {i}") for i in range(5))
        assert [len(history(one)) for one in replies] == [1, 2, 3, 4, 5]
        assert server.episodes["e"]["actions"] == [f"QUERY: {i}" for i in range(5)]


async def test_an_answered_step_can_be_repeated():
    async with playing("e") as (_, client):
        first = await client.step("e", "QUERY: 0")
        await client.step("e", "QUERY: 1")
        assert await client.step("e", "QUERY: 0", step=0) == first
        with pytest.raises(Conflict):
            await client.step("e", "QUERY: other", step=0)
        assert len(history(await client.step("e", "QUERY: 2"))) == 3


async def test_an_episode_of_another_client_can_be_played_but_not_rebuilt():
    async with playing("e") as (server, _), server.client() as other:
        server.lose_replies = 1
        both = await other.step_many([("e", "QUERY: 1"), ("e", "QUERY: 2")])
        assert [len(history(one)) for one in both] == [1, 2]
        assert server.steps_played == 2
        assert await other.step("e", "QUERY: 1", step=0) == both[0]
        server.restart()
        with pytest.raises(UnknownEpisode):
            await other.step("e", "QUERY: 3")


async def test_close_frees_the_place_and_can_be_repeated():
    async with playing("e") as (server, client):
        await client.close_episode("e")
        assert (server.episodes, client.open_episodes) == ({}, [])
        await client.close_episode("e")
        await client.close_episode("never begun")


# -- servers


async def test_metadata_and_readiness():
    async with playing() as (server, client):
        assert (await client.metadata()).digest == "d1"
        server.ready = False
        asyncio.get_running_loop().call_later(0.15, setattr, server, "ready", True)
        await client.wait_ready(5.0)
        server.ready = False
        with pytest.raises(ServerUnreachable, match=r"not ready after 0\.15 s.*http://fake"):
            await client.wait_ready(0.15)


async def test_waiting_for_what_is_not_an_environment_server_ends_at_once():
    website = httpx.MockTransport(lambda request: httpx.Response(404, text="not found"))
    async with SQLEnvClient("http://site", transport=website) as client:
        with pytest.raises(SQLEnvError, match="http://site answered HTTP 404"):
            await client.wait_ready(30.0)


async def test_an_unreachable_server_is_named():
    async with client_of("http://127.0.0.1:9", None, max_attempts=2) as client:
        for call in (client.reset(), client.metadata(), client.close_episode("e")):
            with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9 .*python -m env_server"):
                await call


@pytest.mark.parametrize(
    "urls",
    ["", "localhost:8000", "ftp://host", "http://", "http://host?x=1", [], ["http://ok", ""]],
)
def test_an_invalid_url_is_refused(urls):
    with pytest.raises(ServerUnreachable, match="http://HOST:PORT"):
        SQLEnvClient(urls)


@pytest.mark.parametrize("name", ["timeout_s", "stall_s", "max_attempts", "max_batch"])
@pytest.mark.parametrize("value", [0, -1])
def test_invalid_limits_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be"):
        ClientLimits(**{name: value})


async def test_a_gateways_cookie_is_not_sent_back():
    async with playing() as (server, client):
        server.faults.append(reply(503, b"", {"Set-Cookie": "replica=1; Path=/"}))
        await client.reset(episode_id="e")
        assert all("cookie" not in headers for headers in server.headers)


def test_the_api_key_is_an_argument_or_from_the_environment_or_a_file(tmp_path, monkeypatch):
    """A copy, such as another process makes of a pickle, sends it too."""

    async def sent(**options: Any) -> set[str | None]:
        async with playing("e", **options) as (server, client), copy(client) as other:
            await other.state("e")
            return {headers.get("authorization") for headers in server.headers}

    monkeypatch.delenv("SQLENV_API_KEY", raising=False)
    assert drive(sent()) == {None}
    assert drive(sent(api_key="given")) == {"Bearer given"}
    monkeypatch.setenv("SQLENV_API_KEY", "of-the-environment, an-old-one")
    assert drive(sent()) == {"Bearer of-the-environment"}
    (file := tmp_path / "key").write_text("of-the-file\n")
    monkeypatch.setenv("SQLENV_API_KEY_FILE", str(file))
    assert drive(sent(api_key="given")) == {"Bearer given"}
    with pytest.raises(Unauthorized, match="are both set"):
        drive(sent())
    monkeypatch.delenv("SQLENV_API_KEY")
    assert drive(sent()) == {"Bearer of-the-file"}
    file.unlink()
    with pytest.raises(Unauthorized, match=f"can't read {file}"):
        drive(sent())


# -- closing


async def test_closing_ends_the_calls_under_way():
    async with playing("e") as (server, client):
        server.delay_s = 30.0
        waiting = asyncio.ensure_future(client.step("e", "QUERY: 0"))
        await asyncio.sleep(0.01)
    with pytest.raises(ServerUnreachable, match="closed"):
        await waiting
    for call in (client.reset(), client.step("e", "QUERY: 0"), client.state("e")):
        with pytest.raises(ServerUnreachable, match="closed"):
            await call


async def test_no_exception_is_left_unretrieved():
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with FakeServer().client(max_attempts=1) as client:
        steps = [asyncio.ensure_future(client.reset()) for _ in range(5)]
        await asyncio.sleep(0)
        steps[0].cancel()
        await asyncio.gather(*steps, return_exceptions=True)
    async with playing("e", max_attempts=1) as (server, client):
        server.faults.append(dropped())
        with pytest.raises(ServerUnreachable):
            await client.step("e", "QUERY: 0")
    gc.collect()
    assert complaints == []


async def test_the_sync_client_works_inside_a_running_loop():
    with FakeServer().client().sync() as client:
        assert client.reset(episode_id="e").observation.step_count == 0


def test_ctrl_c_does_not_wait_for_the_calls_of_other_threads():
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


def test_the_sync_and_the_async_client_have_the_same_members():
    async_names = {name for name in dir(SQLEnvClient) if not name.startswith("_")} - {
        "sync",
        "aclose",
    } | {"stats"}
    sync_names = {name for name in vars(SyncSQLEnvClient) if not name.startswith("_")}
    assert sync_names - async_names == {"start_step"}  # a task, for code with an event loop
    assert async_names <= sync_names


def test_a_step_is_started_without_waiting_and_given_up():
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


async def test_a_reply_has_a_limit(monkeypatch):
    """A server may be another program, or hostile: a small compressed reply could fill memory."""
    monkeypatch.setattr("shared.client.replica.MAX_REPLY_BYTES", 100_000)

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        assert dict(scope["headers"])[b"accept-encoding"] == b"identity"
        packed = [(b"content-encoding", b"gzip")]
        await send({"type": "http.response.start", "status": 200, "headers": packed})
        await send({"type": "http.response.body", "body": gzip.compress(b"[" * 10_000_000)})

    transport = httpx.ASGITransport(endless)
    async with SQLEnvClient("http://one", transport=transport, resolve=None) as client:
        with pytest.raises(WrongAddress, match="over 100,000 bytes"):
            await client.metadata()
