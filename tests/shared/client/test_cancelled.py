"""A cancelled call loses nothing: steps are settled, resets are closed, closes can be repeated."""

import asyncio
from typing import Any

import pytest

from shared.errors import Conflict, ServerUnreachable, UnknownEpisode
from tests.shared.client.fake_server import FakeServer, drive, dropped

pytestmark = pytest.mark.filterwarnings("error")


async def cancelled(call: Any, after_s: float = 0.02) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, after_s)


@pytest.mark.parametrize("asleep", [True, False], ids=["in flight", "not sent"])
@pytest.mark.parametrize("own", [True, False], ids=["own", "another client's"])
def test_a_cancelled_step_is_settled_before_the_next_action(asleep: bool, own: bool) -> None:
    async def main() -> None:
        server = FakeServer()
        patient = {"max_attempts": 1_000}
        async with server.client(**patient) as client, server.client() as other:
            await (client if own else other).reset(episode_id="e")
            if asleep:
                server.awake.clear()
                await cancelled(client.step("e", "QUERY: 1"))
                server.awake.set()
            else:
                server.down = True
                await cancelled(client.step("e", "QUERY: 1"))
                server.down = False
            reply = await client.step("e", "QUERY: 2")
            assert reply.observation.action_history == ["QUERY: 1", "QUERY: 2"]
            assert reply.observation.result == "played QUERY: 2"
            assert server.steps_played == 2

    drive(main())


def test_the_same_action_is_the_repetition_of_a_cancelled_step() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.delay_s = 0.1
            await cancelled(client.step("e", "QUERY: 1"))
            server.delay_s = 0.0
            assert (await client.step("e", "QUERY: 1")).observation.step_count == 1
            assert (await client.step("e", "QUERY: 1")).observation.step_count == 2

    drive(main())


def test_the_reply_to_a_cancelled_step_can_be_read() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            assert (await client.last_reply("e")).observation.step_count == 0
            server.delay_s = 0.1
            await cancelled(client.step("e", "QUERY: 1"))
            await cancelled(client.last_reply("e"))  # a cancelled settling is settled too
            server.delay_s = 0.0
            assert (await client.last_reply("e")).observation.result == "played QUERY: 1"
            server.delay_s = 0.1
            await cancelled(client.step("e", "ANSWER: 1"))
            server.delay_s = 0.0
            with pytest.raises(UnknownEpisode):
                await client.last_reply("unknown")
            assert (await client.last_reply("e")).done
            assert (await client.last_reply("e")).observation.result == "played ANSWER: 1"

    drive(main())


def test_a_step_that_failed_without_a_reply_is_settled_too() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client(max_attempts=1) as client:
            await client.reset(episode_id="e")
            server.lose_replies = 1
            with pytest.raises(ServerUnreachable):
                await client.step("e", "QUERY: 1")
            reply = await client.step("e", "QUERY: 2")
            assert reply.observation.action_history == ["QUERY: 1", "QUERY: 2"]
            with pytest.raises(Conflict):
                await client.step("e", "QUERY: 3", step=1)  # the caller numbers its steps itself

    drive(main())


def test_one_failure_of_many_and_a_cancelled_batch_strand_no_episode() -> None:
    async def main() -> None:
        server = FakeServer()
        names = [f"e{number}" for number in range(20)]
        async with server.client(max_attempts=1) as client:
            await client.reset_many({"episode_id": name} for name in names)
            server.faults.append(dropped())
            with pytest.raises(ServerUnreachable):
                await asyncio.gather(*(client.step(name, "QUERY: 1") for name in names))
            await client.step_many((name, "QUERY: 1") for name in names)
            server.delay_s = 0.1
            await cancelled(client.step_many((name, "QUERY: 2") for name in names))
            server.delay_s = 0.0
            replies = await client.step_many((name, "QUERY: 3") for name in names)
            for reply in replies:
                assert reply.observation.action_history == ["QUERY: 1", "QUERY: 2", "QUERY: 3"]

    drive(main())


def test_a_step_cancelled_while_its_server_is_replaced() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client(max_attempts=1_000) as client:
            await client.reset(episode_id="e")
            await client.step("e", "QUERY: 1")
            server.down = True
            await cancelled(client.step("e", "QUERY: 2"))
            server.restart()
            server.down = False
            reply = await client.step("e", "QUERY: 3")
            assert reply.observation.action_history == ["QUERY: 1", "QUERY: 2", "QUERY: 3"]

    drive(main())


def test_an_episode_whose_reset_was_cancelled_is_closed() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            server.delay_s = 0.1
            await cancelled(client.reset(episode_id="e"))
            await cancelled(client.reset_many({} for _ in range(3)))
            server.delay_s = 0.0
            again = await client.reset(episode_id="e", step_budget=3)  # with other options
            assert again.observation.budget_remaining == 3
            await asyncio.sleep(0.3)
            assert list(server.episodes) == ["e"]
            assert client.open_episodes == ["e"]

    drive(main())


def test_a_cancelled_close_can_be_repeated() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            await client.reset(episode_id="e")
            server.awake.clear()
            await cancelled(client.close_episode("e"))
            server.awake.set()
            await client.close_episode("e")
            assert not server.episodes

    drive(main())


def test_closing_the_client_ends_what_was_cancelled() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            server.delay_s = 5.0
            await cancelled(client.reset(episode_id="e"))

    drive(main(), timeout_s=3.0)
