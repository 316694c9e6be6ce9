"""The client against a server that fails on demand: what it recovers from, and what it reports."""

import asyncio
import time
from typing import Any

import anyio
import httpx
import pytest

from shared.errors import (
    ActionParseError,
    CapacityReached,
    DigestMismatch,
    InternalError,
    InvalidRequest,
    NotReady,
    ServerUnreachable,
    SQLEnvError,
    UnknownEpisode,
)
from tests.shared.client.fake_server import URL, FakeServer, capacity, drive, dropped, reply

pytestmark = pytest.mark.filterwarnings("error")


# -- retries


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
def test_a_temporary_failure_is_retried(fault: Any) -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.faults.extend([fault, fault])
            assert (await client.step("e", "QUERY: 1")).observation.step_count == 1
            assert client.stats.retries == 2
            assert server.steps_played == 1

    drive(main())


def test_an_unforeseen_exception_passes_at_once() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.faults.append(dropped(ZeroDivisionError))
            with pytest.raises(ZeroDivisionError):
                await client.step("e", "QUERY: 1")
            assert client.stats.retries == 0

    drive(main())


def test_a_step_whose_reply_is_lost_is_counted_once() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset_many([{"episode_id": f"e{i}"} for i in range(10)])
            server.lose_replies = 2
            replies = await client.step_many((f"e{i}", "QUERY: 1") for i in range(10))
            assert [
                reply.observation.step_count
                for reply in replies
                if not isinstance(reply, SQLEnvError)
            ] == [1] * 10
            assert server.steps_played == 10
            assert server.sent("/step_batch") == [10] * 3
            assert client.stats.retries == 2  # of requests: the batch is sent again as one

    drive(main())


def test_a_step_of_another_clients_episode_is_counted_once() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as first, server.client() as client:
            await first.reset(episode_id="e")
            server.lose_replies = 1
            both = await client.step_many([("e", "QUERY: 1"), ("e", "QUERY: 2")])
            assert [
                reply.observation.step_count for reply in both if not isinstance(reply, SQLEnvError)
            ] == [1, 2]
            assert server.steps_played == 2
            assert (await client.step("e", "QUERY: 1", step=0)) == both[0], (
                "an explicit step number is used"
            )
            with pytest.raises(UnknownEpisode):
                await client.step("never begun", "QUERY: 1")

    drive(main())


def test_a_request_that_times_out_is_retried() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client(timeout_s=0.2) as client:
            await client.reset(episode_id="e")
            server.delay_s = 10.0
            asyncio.get_running_loop().call_later(0.3, setattr, server, "delay_s", 0.0)
            assert (await client.step("e", "QUERY: 1")).observation.step_count == 1
            assert client.stats.retries >= 1
            assert server.steps_played == 1

    drive(main())


def test_a_retryable_item_is_retried_without_its_batch() -> None:
    async def main() -> None:
        server = FakeServer()
        server.item_errors["e3"] = [capacity(), capacity()]
        async with server.client() as client:
            resets = await client.reset_many([{"episode_id": f"e{i}"} for i in range(5)])
            assert [reset.episode_id for reset in resets if not isinstance(reset, SQLEnvError)] == [
                f"e{i}" for i in range(5)
            ]
            assert server.sent("/reset_batch") == [5, 1, 1]
            assert client.stats.retries == 2

    drive(main())


@pytest.mark.parametrize("where", ["header", "body", "item"])
def test_retry_after_is_honoured(where: str) -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
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

    drive(main())


def test_retries_are_limited_and_the_error_has_the_url_and_a_remedy() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client(max_attempts=3) as client:
            await client.reset_many([{"episode_id": f"e{i}"} for i in range(8)])
            server.faults.extend([dropped(httpx.ConnectError)] * 100)
            errors = await client.step_many((f"e{i}", "QUERY: 1") for i in range(8))
            for error in errors:
                assert isinstance(error, ServerUnreachable)
                assert URL in str(error)
                assert "python -m env_server" in str(error)
                assert error.details["attempts"] == 3
            assert len(server.sent("/step_batch")) == 3  # per batch, not per item
            server.faults.clear()
            replies = await client.step_many((f"e{i}", "QUERY: 1") for i in range(8))
            assert {
                r.observation.step_count for r in replies if not isinstance(r, SQLEnvError)
            } == {1}

    drive(main())


def test_a_server_that_stays_full_raises_capacity_reached() -> None:
    async def main() -> None:
        server = FakeServer()
        server.item_errors["e"] = [capacity() for _ in range(100)]
        async with server.client(max_attempts=3) as client:
            with pytest.raises(CapacityReached):
                await client.reset(episode_id="e")
            assert len(server.sent("/reset_batch")) == 3

    drive(main())


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (
            reply(422, {"error": {"code": "invalid_request", "message": "steps: missing"}}),
            InvalidRequest,
            "steps",
        ),
        (reply(404, b"<html>not found</html>"), SQLEnvError, "http://fake answered HTTP 404"),
        (reply(500, b"Internal Server Error"), SQLEnvError, "HTTP 500"),
        (reply(200, b"not json"), SQLEnvError, "http://fake answered HTTP 200"),
        (reply(200, {"results": []}), SQLEnvError, "did not answer each of 1"),
        (reply(200, {"results": [{"done": True}]}), SQLEnvError, "not a StepResult: observation"),
        (reply(200, {"results": [None]}), SQLEnvError, "not a StepResult"),
    ],
)
def test_what_no_retry_helps_is_raised_at_once(
    fault: Any, error: type[SQLEnvError], words: str
) -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.faults.append(fault)
            with pytest.raises(error, match=words):
                await client.step("e", "QUERY: 1")
            assert client.stats.retries == 0

    drive(main())


# -- rebuilding


def test_a_lost_episode_is_rebuilt_by_replay() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset_many([{"episode_id": f"e{i}", "step_budget": 9} for i in range(20)])
            for k in range(3):
                await client.step_many((f"e{i}", f"QUERY: {k}") for i in range(20))
            server.restart()
            replies = await client.step_many((f"e{i}", "QUERY: 3") for i in range(20))
            for reply in replies:
                assert not isinstance(reply, SQLEnvError)
                assert reply.observation.action_history == [f"QUERY: {k}" for k in range(4)]
                assert reply.observation.budget_remaining == 5
                # the same question, although the reset did not name one
                assert reply.info.question_id == "picked"
            assert client.stats.rebuilds == 20
            assert server.sent("/reset_batch") == [20, 20]

    drive(main())


def test_a_server_that_is_behind_is_brought_up_to_date() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            await client.step("e", "QUERY: 1")
            del server.episodes["e"]["actions"][1:]
            assert (await client.step("e", "QUERY: 2")).observation.step_count == 3
            assert client.stats.rebuilds == 1

    drive(main())


def test_state_rebuilds_too() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            server.restart()
            assert (await client.state("e")).action_history == ["QUERY: 0"]
            with pytest.raises(UnknownEpisode):
                await client.state("never begun")

    drive(main())


def test_a_server_that_keeps_losing_an_episode_is_given_up() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.step = lambda item: (_ for _ in ()).throw(UnknownEpisode("lost"))  # type: ignore[method-assign]
            with pytest.raises(UnknownEpisode):
                await client.step("e", "QUERY: 0")
            assert client.stats.rebuilds == 4  # max_attempts

    drive(main())


def test_an_episode_that_is_lost_between_its_rebuild_and_its_step_is_rebuilt_again() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            server.item_errors["e"] = [UnknownEpisode("lost")]
            server.restart()
            play, crashes = server.step, iter([True, True, False])
            server.step = lambda item: (server.restart() if next(crashes) else None) or play(item)  # type: ignore[func-returns-value, method-assign]
            reply = await client.step("e", "QUERY: 1")
            assert reply.observation.action_history == ["QUERY: 0", "QUERY: 1"]
            assert client.stats.rebuilds == 3

    drive(main())


def test_a_replay_to_another_reply_is_an_error() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            server.restart()
            play = server.result
            server.result = lambda episode, text: play(episode, text + ", but otherwise")  # type: ignore[method-assign]
            with pytest.raises(SQLEnvError, match="replays episode e to another reply"):
                await client.step("e", "QUERY: 1")

    drive(main())


def test_after_a_restart_with_other_data_old_episodes_are_refused() -> None:
    async def main() -> None:
        server = FakeServer(digest="old")
        async with server.client() as client:
            await client.reset(episode_id="begun before")
            server.restart()
            server.digest = "other"
            with pytest.raises(DigestMismatch):
                await client.step("begun before", "QUERY: 0")
            await client.reset(episode_id="begun after")
            server.restart()
            assert (await client.step("begun after", "QUERY: 0")).observation.step_count == 1

    drive(main())


def test_an_invalid_action_is_not_replayed() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            with pytest.raises(ActionParseError):
                await client.step("e", "nonsense")
            await client.step("e", "QUERY: 0")
            server.restart()
            assert (await client.step("e", "QUERY: 1")).observation.action_history == [
                "QUERY: 0",
                "QUERY: 1",
            ]

    drive(main())
