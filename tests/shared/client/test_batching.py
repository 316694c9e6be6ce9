"""Batching: which calls leave together, which wait, and that every caller gets an answer."""

import asyncio

import pytest

from shared.errors import InternalError, ServerUnreachable
from shared.models import StepResult
from tests.shared.client.fake_server import IDS, history, playing, reply

pytestmark = pytest.mark.filterwarnings("error")


async def test_concurrent_episodes_share_requests():
    async with playing() as (server, client):

        async def episode(i: int) -> list[str]:
            reset = await client.reset(question_id=f"q{i}")
            replies = [await client.step(reset.episode_id, f"QUERY: {i}.{k}") for k in range(4)]
            return [reply.observation.result for reply in replies]

        results = await asyncio.gather(*(episode(i) for i in range(64)))
        assert results == [[f"played QUERY: {i}.{k}" for k in range(4)] for i in range(64)]
        assert server.sent("/step_batch") == [64] * 4
        assert server.sent("/reset_batch") == [64]
        assert server.sent("/metadata") == [1]
        assert (client.stats.batches, client.stats.requests, client.stats.steps) == (5, 6, 256)


async def test_steps_accumulate_while_the_allowed_batches_are_in_flight():
    async with playing(*IDS[:10], batches_in_flight=2) as (server, client):
        server.awake.clear()
        waiting: list[asyncio.Task[StepResult]] = []
        for name in IDS[:10]:
            waiting.append(asyncio.create_task(client.step(name, "QUERY: 1")))
            await asyncio.sleep(0.001)
        server.awake.set()
        assert [len(history(one)) for one in await asyncio.gather(*waiting)] == [1] * 10
        assert server.sent("/step_batch") == [1, 1, 8]


async def test_batch_size_and_batches_in_flight_are_limited():
    async with playing(max_batch=10, batches_in_flight=2) as (server, client):
        server.delay_s = 0.002
        await client.reset_many([{}] * 95)
        assert server.sent("/reset_batch") == [10] * 9 + [5]
        assert server.most_in_flight == 2


async def test_the_bytes_of_a_batch_are_limited_unless_one_item_is_larger():
    async with playing(*IDS[:4], max_batch_bytes=1_000) as (server, client):
        sizes = (600, 200, 3_000, 1)
        steps = [(name, f"QUERY: {'1' * size}") for name, size in zip(IDS, sizes, strict=False)]
        assert [len(history(one)) for one in await client.step_many(steps)] == [1] * 4
        assert server.sent("/step_batch") == [2, 1, 1]


async def test_one_bad_item_fails_alone():
    async with playing("e0", "e1", "e2", "e3") as (server, client):
        actions = ["QUERY: 1", "nonsense", "QUERY: \ud800", "QUERY: 1"]
        replies = await client.step_many((f"e{i}", action) for i, action in enumerate(actions))
        kinds = [type(reply).__name__ for reply in replies]
        assert kinds == ["StepResult", "ActionParseError", "InvalidRequest", "StepResult"]
        assert server.sent("/step_batch") == [3]  # an item that is not JSON is not sent
        # the episode continues
        assert history(await client.step("e1", "QUERY: 1")) == ["QUERY: 1"]


async def test_a_failed_batch_fails_only_its_own_steps_with_an_error_for_each():
    async with playing(*IDS[:3], max_attempts=1) as (server, client):
        server.faults.append(reply(500, InternalError("broken").to_wire()))
        errors = await client.step_many((name, "QUERY: 0") for name in IDS[:3])
        assert [(type(one), str(one)) for one in errors] == [(InternalError, "broken")] * 3
        assert len(set(map(id, errors))) == 3
        assert len(history(await client.step(IDS[0], "QUERY: 0"))) == 1


@pytest.mark.parametrize("ticks", [0, 1, 3, 9])
async def test_closing_answers_every_waiter(ticks):
    async with playing(*IDS[:5], max_batch=2, batches_in_flight=1) as (server, client):
        server.awake.clear()
        waiting = [asyncio.create_task(client.step(name, "QUERY: 0")) for name in IDS[:5]]
        for _ in range(ticks):  # before, at and after the start of the first batch
            await asyncio.sleep(0)
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [ServerUnreachable] * 5
    assert all("closed" in str(error) for error in errors)


async def test_a_step_that_is_cancelled_before_its_batch_leaves_is_not_sent():
    async with playing("a", "b", "c", batches_in_flight=1) as (server, client):
        server.awake.clear()
        steps = []
        for name in ("a", "b", "c"):
            steps.append(asyncio.create_task(client.step(name, "QUERY: 1")))
            await asyncio.sleep(0.001)
        steps[1].cancel()  # while the batch of the first is under way
        server.awake.set()
        await asyncio.gather(*steps, return_exceptions=True)
        assert server.sent("/step_batch") == [1, 1]
        assert not server.episodes["b"]["actions"]
