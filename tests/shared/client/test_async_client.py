"""The public calls of the client: playing, servers, and closing; `test_batching.py` has batches."""

import asyncio
import gc
from typing import Any

import httpx
import pytest

from shared.actions import ActionType, SQLAction
from shared.client import SQLEnvClient
from shared.errors import Behind, Conflict, NotReady, ServerUnreachable, SQLEnvError, UnknownEpisode
from tests.shared.client.fake_server import URL, FakeServer, client_of, drive, dropped, reply

pytestmark = pytest.mark.filterwarnings("error")


# -- playing


def test_an_episode_from_reset_to_answer() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            first = await client.reset(question_id="q1", step_budget=3)
            assert first.info.question_id == "q1"
            assert first.observation.budget_remaining == 3
            assert client.open_episodes == [first.episode_id]
            reply = await client.step(
                first.episode_id, SQLAction(action_type=ActionType.DESCRIBE, argument="t")
            )
            assert (reply.observation.result, reply.reward, reply.done) == (
                "played DESCRIBE: t",
                -0.02,
                False,
            )
            state = await client.state(first.episode_id)
            assert state.action_history == ["DESCRIBE: t"]
            last = await client.step(first.episode_id, "ANSWER: 42")
            assert last.done
            assert client.open_episodes == []  # ended episodes are not kept
            assert client.stats.steps == 2
            assert client.stats.retries == client.stats.rebuilds == 0

    drive(main())


def test_a_step_ahead_of_the_episode_is_sent_once() -> None:
    """The server refuses it, or answers it if another client has played the steps before it."""

    async def main() -> None:
        server = FakeServer()
        async with server.client() as client, server.client() as other:
            episode_id = (await client.reset()).episode_id
            with pytest.raises(Behind):
                await client.step(episode_id, "SAMPLE: t", step=3)
            await other.step(episode_id, "SAMPLE: t")
            reply = await client.step(episode_id, "SAMPLE: u", step=1)
            assert reply.observation.step_count == 2
            second = (await client.reset()).episode_id
            assert client.stats.retries == client.stats.rebuilds == 0
            server.item_errors[second] = [NotReady("not yet", retry_after_s=0)]
            both = [client.step(second, "SAMPLE: t", step=step) for step in (0, 1)]
            replies = await asyncio.gather(*both)  # the second waits for the first
            assert [one.observation.step_count for one in replies] == [1, 2]

    drive(main())


def test_every_reset_option_reaches_the_server() -> None:
    async def main() -> None:
        server = FakeServer()
        seen: list[dict[str, Any]] = []
        play = server.reset
        server.reset = lambda item: seen.append(item) or play(item)  # type: ignore[method-assign, func-returns-value]
        async with server.client() as client:
            await client.reset(
                split="train",
                difficulty=("easy", "medium"),
                db_id="d",
                seed=0,
                step_budget=4,
                answer_form="sql",
                episode_id="e1",
            )
            forked = await client.reset(
                question_id="q",
                actions=["SAMPLE: t", SQLAction(action_type=ActionType.QUERY, argument="x")],
            )
        assert seen[0] == {
            "episode_id": "e1",
            "split": "train",
            "difficulty": ["easy", "medium"],
            "db_id": "d",
            "seed": 0,
            "step_budget": 4,
            "answer_form": "sql",
        }
        assert seen[1]["actions"] == ["SAMPLE: t", "QUERY: x"]
        assert forked.observation.step_count == 2

    drive(main())


def test_a_fork_continues_after_its_actions() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            forked = await client.reset(question_id="q", actions=["SAMPLE: t"])
            await client.step(forked.episode_id, "QUERY: x")
            server.restart()
            reply = await client.step(forked.episode_id, "QUERY: y")
            assert reply.observation.action_history == ["SAMPLE: t", "QUERY: x", "QUERY: y"]

    drive(main())


def test_a_rebuilt_episode_keeps_its_answer_form() -> None:
    async def main() -> None:
        server = FakeServer()
        seen: list[dict[str, Any]] = []
        play = server.reset
        server.reset = lambda item: seen.append(item) or play(item)  # type: ignore[method-assign, func-returns-value]
        async with server.client() as client:
            for form in ("sql", None):
                reset = await client.reset(question_id="q", answer_form=form)
                server.restart()
                await client.step(reset.episode_id, "QUERY: x")
        assert [item.get("answer_form") for item in seen] == ["sql", "sql", None, None]

    drive(main())


def test_episodes_get_ids_of_their_own() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            resets = await client.reset_many([{"question_id": "q"}] * 50)
            assert (
                len({reset.episode_id for reset in resets if not isinstance(reset, SQLEnvError)})
                == 50
            )

    drive(main())


def test_steps_of_one_episode_keep_their_order() -> None:
    async def main() -> None:
        server = FakeServer()
        server.delay_s = 0.002
        async with server.client() as client:
            await client.reset(episode_id="e")
            replies = await client.step_many(("e", f"QUERY: {i}") for i in range(5))
            assert [
                r.observation.step_count for r in replies if not isinstance(r, SQLEnvError)
            ] == [1, 2, 3, 4, 5]
            assert server.episodes["e"]["actions"] == [f"QUERY: {i}" for i in range(5)]

    drive(main())


def test_an_answered_step_can_be_repeated() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            first = await client.step("e", "QUERY: 0")
            await client.step("e", "QUERY: 1")
            assert await client.step("e", "QUERY: 0", step=0) == first
            with pytest.raises(Conflict):
                await client.step("e", "QUERY: other", step=0)
            assert (await client.step("e", "QUERY: 2")).observation.step_count == 3

    drive(main())


def test_an_episode_of_another_client_can_be_played_but_not_rebuilt() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as mine, server.client() as other:
            await mine.reset(episode_id="e")
            assert (await other.step("e", "QUERY: 1")).observation.step_count == 1
            assert (await other.step("e", "QUERY: 2", step=1)).observation.step_count == 2
            server.restart()
            with pytest.raises(UnknownEpisode):
                await other.step("e", "QUERY: 3")

    drive(main())


def test_close_frees_the_place_and_can_be_repeated() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            await client.close_episode("e")
            assert (server.episodes, client.open_episodes) == ({}, [])
            await client.close_episode("e")
            await asyncio.gather(*(client.close_episode(f"none{i}") for i in range(50)))
            assert server.most_in_flight <= 4

    drive(main())


# -- servers


def test_health_metadata_and_readiness() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            assert await client.health() == {URL: "healthy"}
            assert (await client.metadata()).digest == "d1"
            server.ready = False
            asyncio.get_running_loop().call_later(0.15, setattr, server, "ready", True)
            await client.wait_ready(5.0)
            server.ready = False
            with pytest.raises(ServerUnreachable, match=r"not ready after 0\.15 s.*http://fake"):
                await client.wait_ready(0.15)

    drive(main())


def test_waiting_for_what_is_not_an_environment_server_ends_at_once() -> None:
    async def main() -> None:
        async def website(request: httpx.Request) -> httpx.Response:
            return httpx.Response(404, text="not found")

        async with SQLEnvClient("http://site", transport=httpx.MockTransport(website)) as client:
            with pytest.raises(SQLEnvError, match="http://site answered HTTP 404"):
                await client.wait_ready(30.0)

    drive(main())


def test_an_unreachable_server_is_named() -> None:
    async def main() -> None:
        async with client_of("http://127.0.0.1:9", None, max_attempts=2) as client:
            for call in (
                client.reset(),
                client.metadata(),
                client.health(),
                client.close_episode("e"),
            ):
                with pytest.raises(
                    ServerUnreachable,
                    match=r"http://127\.0\.0\.1:9 \(ConnectError: .*python -m env_server",
                ):
                    await call

    drive(main())


@pytest.mark.parametrize(
    "urls",
    ["", "localhost:8000", "ftp://host", "http://", "http://host?x=1", [], ["http://ok", ""]],
)
def test_an_invalid_url_is_refused_by_name(urls: Any) -> None:
    with pytest.raises(ServerUnreachable, match="http://HOST:PORT"):
        SQLEnvClient(urls)


@pytest.mark.parametrize(
    "options", [{"timeout_s": 0}, {"max_attempts": 0}, {"max_batch": 0}, {"batches_in_flight": 0}]
)
def test_invalid_limits_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        client_of(URL, None, **options)


def test_a_gateways_cookie_is_not_sent_back() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            server.faults.append(reply(503, b"", {"Set-Cookie": "replica=1; Path=/"}))
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 0")
            assert all("cookie" not in headers for headers in server.headers)

    drive(main())


def test_the_api_key_is_an_argument_or_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def sent(**options: Any) -> set[str | None]:
        server = FakeServer()
        async with server.client(**options) as client:
            await client.step((await client.reset()).episode_id, "QUERY: 0")
        return {headers.get("authorization") for headers in server.headers}

    monkeypatch.delenv("SQLENV_API_KEY", raising=False)
    assert drive(sent()) == {None}
    assert drive(sent(api_key="given")) == {"Bearer given"}
    monkeypatch.setenv("SQLENV_API_KEY", "of-the-environment")
    assert drive(sent()) == {"Bearer of-the-environment"}


# -- closing


def test_closing_ends_the_calls_under_way() -> None:
    async def main() -> None:
        server = FakeServer()
        client = server.client()
        async with client:
            await client.reset(episode_id="e")
            server.delay_s = 30.0
            waiting = asyncio.ensure_future(client.step("e", "QUERY: 0"))
            await asyncio.sleep(0.01)
        with pytest.raises(ServerUnreachable, match="closed"):
            await waiting
        for call in (
            client.reset(),
            client.step("e", "QUERY: 0"),
            client.state("e"),
            client.health(),
        ):
            with pytest.raises(ServerUnreachable, match="closed"):
                await call

    drive(main())


def test_a_cancelled_step_can_be_repeated() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.delay_s = 0.05
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.step("e", "QUERY: 0"), 0.01)
            assert (await client.step("e", "QUERY: 0")).observation.step_count == 1
            assert server.steps_played == 1

    drive(main())


def test_no_exception_is_left_unretrieved() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client(max_attempts=1) as client:
            server.faults.append(dropped())
            steps = [asyncio.ensure_future(client.reset()) for _ in range(5)]
            await asyncio.sleep(0)
            steps[0].cancel()
            await asyncio.gather(*steps, return_exceptions=True)

    complaints: list[Any] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: complaints.append(context)
        )
        await main()
        gc.collect()

    drive(watched())
    assert complaints == []


def test_a_client_works_without_async_with() -> None:
    async def main() -> None:
        client = FakeServer().client()
        await client.reset(episode_id="e")
        await client.aclose()

    drive(main())
