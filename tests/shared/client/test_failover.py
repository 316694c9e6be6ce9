"""The client against a server that fails on demand: what it recovers from, and what it reports."""

import asyncio
import time
from typing import Any

import anyio
import httpx
import pytest

from shared.client.limits import ClientLimits
from shared.client.retries import retry_wait_s
from shared.errors import (
    CapacityReached,
    Conflict,
    DigestMismatch,
    InternalError,
    InvalidRequest,
    NotReady,
    ServerUnreachable,
    SQLEnvError,
    UnknownEpisode,
)
from tests.shared.client.fake_server import (
    IDS,
    URL,
    begin,
    capacity,
    dropped,
    history,
    playing,
    reply,
    turn,
)

pytestmark = pytest.mark.filterwarnings("error")


# -- retries


def test_waits_double_up_to_the_longest_and_jitter():
    limits = ClientLimits(max_attempts=100, backoff_s=1.0, longest_wait_s=8.0)
    for attempt, longest in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (99, 8)]:
        waits = [retry_wait_s(limits, attempt, NotReady("")) for _ in range(200)]
        assert all(wait is not None and longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 100


@pytest.mark.parametrize(
    ("attempt", "error", "options", "again"),
    [
        (2, NotReady(""), {}, True),
        (3, NotReady(""), {}, False),
        (1, Conflict(""), {}, False),
        (1, Conflict(""), {"hopeful": True}, True),
        (1, ServerUnreachable("", attempts=3), {}, False),  # an inner layer has retried it
        (99, NotReady(""), {"patience_s": 10.0, "elapsed_s": 9.0}, True),
        (99, NotReady(""), {"patience_s": 10.0, "elapsed_s": 10.0}, False),
        (2, NotReady(""), {"patience_s": 10.0, "elapsed_s": 10.0}, True),
    ],
)
def test_attempts_and_patience_and_the_error_decide_whether_to_retry(
    attempt, error, options, again
):
    limits = ClientLimits(max_attempts=3, patience_s=options.pop("patience_s", 0.0))
    assert (retry_wait_s(limits, attempt, error, **options) is not None) is again


@pytest.mark.parametrize(
    ("stated", "low", "high"),
    [(2, 2, 2.1), (0.5, 0.5, 0.6), (9e9, 60, 60.1), (-5, 0, 0.1), ("soon", 0, 0.1), (None, 0, 0.1)],
)
def test_retry_after_comes_on_top_and_is_capped(stated, low, high):
    limits = ClientLimits(backoff_s=0.1)
    wait = retry_wait_s(limits, 1, CapacityReached("", retry_after_s=stated))
    assert low <= wait <= high


@pytest.mark.parametrize(
    "fault",
    [
        reply(429, capacity().to_wire()),
        reply(503, NotReady("starting").to_wire()),
        reply(500, InternalError("a bug").to_wire()),
        reply(502, b"<html>bad gateway</html>"),
        reply(503, b""),
        reply(504, {"detail": "gateway timeout"}),
        dropped(httpx.ConnectError),
        dropped(httpx.ReadError),
        dropped(httpx.RemoteProtocolError),
        dropped(httpx.WriteError),
        dropped(httpx.StreamError),
        dropped(ConnectionResetError),
        dropped(anyio.ClosedResourceError),
    ],
)
async def test_a_temporary_failure_is_retried(fault):
    async with playing("e") as (server, client):
        server.faults.extend([fault, fault])
        assert history(await client.step("e", "QUERY: 1")) == ["QUERY: 1"]
        assert client.stats.retries == 2
        assert server.steps_played == 1


async def test_an_unforeseen_exception_passes_at_once():
    async with playing("e") as (server, client):
        server.faults.append(dropped(ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            await client.step("e", "QUERY: 1")
        assert client.stats.retries == 0


async def test_a_step_whose_reply_is_lost_is_counted_once():
    async with playing(*IDS[:10]) as (server, client):
        server.lose_replies = 2
        await turn(client, 0, IDS[:10])
        assert server.steps_played == 10
        assert server.sent("/step_batch") == [10] * 3
        assert client.stats.retries == 2  # of requests: the batch is sent again as one


async def test_a_request_that_times_out_is_retried():
    async with playing("e", timeout_s=0.2) as (server, client):
        server.delay_s = 10.0
        asyncio.get_running_loop().call_later(0.3, setattr, server, "delay_s", 0.0)
        assert history(await client.step("e", "QUERY: 1")) == ["QUERY: 1"]
        assert client.stats.retries >= 1
        assert server.steps_played == 1


async def test_a_retryable_item_is_retried_without_its_batch():
    async with playing() as (server, client):
        server.item_errors[IDS[3]] = [capacity(), capacity()]
        await begin(client, IDS[:5])
        assert server.sent("/reset_batch") == [5, 1, 1]
        assert client.stats.retries == 2


@pytest.mark.parametrize("where", ["header", "body", "item"])
async def test_retry_after_is_honoured(where):
    async with playing("e") as (server, client):
        if where == "header":
            server.faults.append(reply(429, b"slow down", {"Retry-After": "0.2"}))
        elif where == "body":
            server.faults.append(reply(429, capacity(0.2).to_wire()))
        else:
            server.item_errors["e"] = [capacity(0.2)]
        started = time.perf_counter()
        await client.step("e", "QUERY: 1")
        assert 0.2 <= time.perf_counter() - started < 5.0
        assert 0.2 <= client.stats.wait_s < 5.0


async def test_retries_are_limited_and_the_error_has_the_url_and_a_remedy():
    async with playing(*IDS[:8], max_attempts=3) as (server, client):
        server.faults.extend([dropped(httpx.ConnectError)] * 100)
        for error in await client.step_many((name, "QUERY: 0") for name in IDS[:8]):
            assert isinstance(error, ServerUnreachable)
            assert URL in str(error)
            assert "python -m env_server" in str(error)
            assert error.details["attempts"] == 3
        assert len(server.sent("/step_batch")) == 3  # per batch, not per item
        server.faults.clear()
        await turn(client, 0, IDS[:8])


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (reply(422, InvalidRequest("steps: missing").to_wire()), InvalidRequest, "steps"),
        (reply(404, b"<html>not found</html>"), SQLEnvError, "http://fake answered HTTP 404"),
        (reply(500, b"Internal Server Error"), SQLEnvError, "HTTP 500"),
        (reply(200, b"not json"), SQLEnvError, "http://fake answered HTTP 200"),
        (reply(200, {"results": []}), SQLEnvError, "did not answer each of 1"),
        (reply(200, {"results": [{"done": True}]}), SQLEnvError, "not a StepResult: observation"),
        (reply(200, {"results": [None]}), SQLEnvError, "not a StepResult"),
    ],
)
async def test_what_no_retry_helps_is_raised_at_once(fault, error, words):
    async with playing("e") as (server, client):
        server.faults.append(fault)
        with pytest.raises(error, match=words):
            await client.step("e", "QUERY: 1")
        assert client.stats.retries == 0


# -- rebuilding


async def test_a_lost_episode_is_rebuilt_by_replay_with_its_question_and_options():
    async with playing() as (server, client):
        chosen = {"step_budget": 9, "answer_form": "sql", "explain": ["empty"]}
        resets = [{"episode_id": name, **chosen} for name in IDS[:20]]
        await client.reset_many(resets)
        for k in range(3):
            await client.step_many((name, f"QUERY: {k}") for name in IDS[:20])
        server.restart()
        seen: list[dict[str, Any]] = []
        play = server.reset
        server.reset = lambda item: seen.append(item) or play(item)  # type: ignore[method-assign, func-returns-value]
        for reply in await client.step_many((name, "QUERY: 3") for name in IDS[:20]):
            assert history(reply) == [f"QUERY: {k}" for k in range(4)]
        # the same question, although the reset did not name one
        options = {"question_id": "picked", **chosen}
        assert all(options.items() <= item.items() for item in seen)
        assert client.stats.rebuilds == len(seen) == 20
        assert server.sent("/reset_batch") == [20, 20]


async def test_a_server_that_is_behind_is_brought_up_to_date():
    async with playing("e") as (server, client):
        await client.step("e", "QUERY: 0")
        await client.step("e", "QUERY: 1")
        del server.episodes["e"]["actions"][1:]
        assert len(history(await client.step("e", "QUERY: 2"))) == 3
        assert client.stats.rebuilds == 1


async def test_state_rebuilds_too():
    async with playing("e") as (server, client):
        await client.step("e", "QUERY: 0")
        server.restart()
        assert (await client.state("e")).action_history == ["QUERY: 0"]
        for call in (client.state("never begun"), client.step("never begun", "QUERY: 1")):
            with pytest.raises(UnknownEpisode):
                await call


async def test_an_episode_that_is_lost_between_its_rebuild_and_its_step_is_rebuilt_again():
    async with playing("e") as (server, client):
        await client.step("e", "QUERY: 0")
        server.item_errors["e"] = [UnknownEpisode("lost")]
        server.restart()
        play, crashes = server.step, iter([True, True, False])
        server.step = lambda item: (server.restart() if next(crashes) else None) or play(item)  # type: ignore[func-returns-value, method-assign]
        assert history(await client.step("e", "QUERY: 1")) == ["QUERY: 0", "QUERY: 1"]
        assert client.stats.rebuilds == 3
        server.step = lambda item: (_ for _ in ()).throw(UnknownEpisode("lost"))  # type: ignore[method-assign]
        with pytest.raises(UnknownEpisode):
            await client.step("e", "QUERY: 2")
        assert client.stats.rebuilds == 3 + 4  # max_attempts


async def test_a_replay_to_another_reply_is_an_error():
    async with playing("e") as (server, client):
        await client.step("e", "QUERY: 0")
        server.restart()
        play = server.result
        server.result = lambda episode, text: play(episode, text + ", but otherwise")  # type: ignore[method-assign]
        with pytest.raises(SQLEnvError, match="replays episode e to another reply"):
            await client.step("e", "QUERY: 1")


async def test_after_a_restart_with_other_data_old_episodes_are_refused():
    async with playing("begun before") as (server, client):
        server.restart()
        server.digest = "other"
        with pytest.raises(DigestMismatch):
            await client.step("begun before", "QUERY: 0")
        await client.reset(episode_id="begun after")
        server.restart()
        assert history(await client.step("begun after", "QUERY: 0")) == ["QUERY: 0"]
