"""A cancelled call loses nothing: steps are settled, resets undone and closes carried out."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import SQLEnvClient, in_process
from shared.client.in_process import ASGIApp
from shared.errors import Conflict, InternalError, ServerUnreachable, SQLEnvError, TimedOut
from tests.shared.client.fake_server import IDS, FakeServer, dropped, fleet, history, playing, turn

pytestmark = pytest.mark.filterwarnings("error")


async def cancelled(call: Awaitable[Any], after_s: float = 0.02) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, after_s)


async def cancelled_in_flight(server: FakeServer, call: Awaitable[Any]) -> None:
    """Cancel a call whose batch is under way; the batch arrives all the same."""
    server.delay_s = 0.1
    await cancelled(call)
    server.delay_s = 0.0


# -- steps


@pytest.mark.parametrize("own", [True, False], ids=["own", "another client's"])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_cancelled_step_is_played_once_and_before_the_next(own, arrives):
    server = FakeServer()
    async with server.client(max_attempts=1_000) as client, server.client() as other:
        await (client if own else other).reset(episode_id="e")
        if arrives:
            await cancelled_in_flight(server, client.step("e", "QUERY: 1"))
        else:
            server.faults.extend([dropped()] * 1_000)
            await cancelled(client.step("e", "QUERY: 1"))
            server.faults.clear()
        reply = await client.step("e", "QUERY: 2")
        assert history(reply) == ["QUERY: 1", "QUERY: 2"]
        assert reply.observation.result == "played QUERY: 2"
        assert server.steps_played == 2
        missed = await client.step("e", "QUERY: 1", step=0)
        assert missed.observation.result == "played QUERY: 1"


@pytest.mark.parametrize("action", ["QUERY: 1", "ANSWER: 1"])
@pytest.mark.parametrize("step", [None, 0])
async def test_the_same_action_is_the_cancelled_step_once_more(action, step):
    async with playing("e") as (server, client):
        await cancelled_in_flight(server, client.step("e", action))
        assert history(await client.step("e", action, step)) == [action]
        if action == "ANSWER: 1":
            assert client.open_episodes == []
        else:
            assert history(await client.step("e", action)) == [action] * 2


@pytest.mark.parametrize(
    ("step", "action"), [(1, "QUERY: 1"), (1, "QUERY: 2"), (None, "QUERY: 2"), (0, "QUERY: 2")]
)
async def test_a_step_number_says_which_step_is_meant(step, action):
    async with playing("e") as (server, client):
        await cancelled_in_flight(server, client.step("e", "QUERY: 1"))
        if step == 0:
            with pytest.raises(Conflict):
                await client.step("e", action, step)
        else:
            assert history(await client.step("e", action, step)) == ["QUERY: 1", action]


async def test_a_cancelled_repeat_of_an_answered_step_leaves_nothing_to_settle():
    async with playing("e") as (server, client):
        for number in range(2):
            await client.step("e", f"QUERY: {number}")
        await cancelled_in_flight(server, client.step("e", "QUERY: 0", step=0))
        assert len(history(await client.step("e", "QUERY: 0"))) == 3


@pytest.mark.parametrize("ask", [SQLEnvClient.state, SQLEnvClient.step], ids=["state", "step"])
async def test_a_settling_that_is_cancelled_is_settled_by_the_call_after_it(ask):
    async with playing("e") as (server, client):
        await cancelled_in_flight(server, client.step("e", "QUERY: 1"))
        arguments = ["e"] if ask is SQLEnvClient.state else ["e", "QUERY: 2"]
        await cancelled_in_flight(server, ask(client, *arguments))
        assert (await client.state("e")).action_history == ["QUERY: 1"]
        assert history(await client.step("e", "QUERY: 3")) == ["QUERY: 1", "QUERY: 3"]


@pytest.mark.parametrize("error", [ServerUnreachable("gone"), TimedOut("late")])
async def test_a_step_that_failed_without_a_reply_is_settled_too(error):
    async with playing("e", max_attempts=1) as (server, client):
        if isinstance(error, TimedOut):
            server.item_errors["e"] = [error]
        else:
            server.lose_replies = 1
        with pytest.raises(type(error)):
            await client.step("e", "QUERY: 1")
        assert history(await client.step("e", "QUERY: 2")) == ["QUERY: 1", "QUERY: 2"]


@pytest.mark.parametrize("late", [True, False], ids=["cancelled", "refused"])
@pytest.mark.parametrize("error", [None, InternalError("a bug")], ids=["no action", "a bug"])
async def test_a_step_that_the_server_refuses_is_not_played(error, late):
    async with playing("e", max_attempts=2) as (server, client):
        server.item_errors["e"] = [error] * (3 if late else 2) if error else []
        action = "QUERY: 1" if error else "nonsense"
        if late:
            await cancelled_in_flight(server, client.step("e", action))
        else:
            with pytest.raises(SQLEnvError):
                await client.step("e", action)
        assert history(await client.step("e", "QUERY: 2")) == ["QUERY: 2"]


async def test_a_call_that_still_waits_for_its_turn_is_not_played():
    async with playing("e") as (server, client):
        both = client.step_many([("e", "QUERY: 1"), ("e", "QUERY: 2")])
        await cancelled_in_flight(server, both)
        assert history(await client.step("e", "QUERY: 3")) == ["QUERY: 1", "QUERY: 3"]


async def test_one_failure_of_many_and_a_cancelled_batch_strand_no_episode():
    names = [f"e{number}" for number in range(20)]
    async with playing(*names, max_attempts=1) as (server, client):
        steps = [client.step(name, "QUERY: 1" if name != "e7" else "nonsense") for name in names]
        with pytest.raises(SQLEnvError):
            await asyncio.gather(*steps)
        await cancelled_in_flight(server, client.step_many((name, "QUERY: 2") for name in names))
        for reply in await client.step_many((name, "QUERY: 3") for name in names):
            assert history(reply)[-2:] == ["QUERY: 2", "QUERY: 3"]


async def test_steps_cancelled_while_their_server_is_replaced():
    async with fleet(2, IDS[:8], max_attempts=1_000) as ((lost, other), client):
        await turn(client, 0, IDS[:8])
        assert lost.episodes
        assert other.episodes
        lost.down = True
        other.delay_s = 0.2  # the rebuilds are under way
        await cancelled(client.step_many((name, "QUERY: 1") for name in IDS[:8]), 0.1)
        other.delay_s = 0.0
        for reply in await client.step_many((name, "QUERY: 2") for name in IDS[:8]):
            assert history(reply) == ["QUERY: 0", "QUERY: 1", "QUERY: 2"]


# -- resets and closes


@pytest.mark.parametrize("arrives", [True, False])
async def test_cancelled_resets_leave_no_episode(arrives):
    async with playing(max_attempts=1_000) as (server, client):
        resets = client.reset_many({} for _ in range(3))
        if arrives:
            await cancelled_in_flight(server, resets)
        else:
            server.faults.extend([dropped()] * 1_000)
            await cancelled(resets)
            server.faults.clear()
        await asyncio.sleep(0.2)
        assert sum(server.sent("/reset_batch")[-1:]) == 3
        assert not server.episodes


@pytest.mark.parametrize("call", ["close", "reset", "nothing"])
async def test_a_cancelled_close_is_carried_out(call):
    async with playing("e") as (server, client):
        server.awake.clear()
        await cancelled(client.close_episode("e"))
        server.awake.set()
        if call == "close":
            await client.close_episode("e")
        elif call == "reset":
            await client.reset(episode_id="e", step_budget=3)
            assert (await client.step("e", "QUERY: 1")).observation.budget_remaining == 2
        else:
            await asyncio.sleep(0.1)
        assert list(server.episodes) == client.open_episodes


async def test_closing_the_client_ends_what_was_cancelled():
    async with asyncio.timeout(3.0), playing() as (server, client):
        server.delay_s = 5.0
        await cancelled(client.reset(episode_id="e"))


# -- the real server


class Gate:
    """An app whose replies to batches wait while it is shut."""

    def __init__(self, app: ASGIApp) -> None:
        self.app, self.open = app, asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def late(message: Any) -> None:
            if scope["type"] == "http" and scope["path"].endswith("_batch"):
                await self.open.wait()
            await send(message)

        await self.app(scope, receive, late)

    async def cancelled(self, call: Awaitable[Any]) -> None:
        self.open.clear()
        await cancelled(call, 0.2)
        self.open.set()


async def test_cancelled_calls_on_the_real_server(tiny_data):
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, capacity=2))
    gate = Gate(app)
    async with in_process(gate) as client:
        await client.wait_ready(30.0)
        for _ in range(3):  # of the two places they leave both free
            await gate.cancelled(client.reset_many([{}, {}]))
        await gate.cancelled(client.reset(episode_id="e", question_id="shop-1"))
        await client.reset(episode_id="e", question_id="shop-2")  # other options
        await client.close_episode("e")

        await client.reset(episode_id="e", question_id="shop-1")
        await gate.cancelled(client.step("e", "SAMPLE: customers"))
        reply = await client.step("e", "DESCRIBE: customers")
        assert history(reply) == ["SAMPLE: customers", "DESCRIBE: customers"]
        await gate.cancelled(client.step("e", "ANSWER: 5"))
        assert (await client.state("e")).outcome is not None
        assert client.open_episodes == []
        assert len(app.state.service.pool) == 0
