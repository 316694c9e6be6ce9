"""Batching: which items leave together, which wait, and that every waiter gets an answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shared.client.batching import Batcher
from shared.errors import InternalError, ServerUnreachable, SQLEnvError
from tests.shared.client.fake_server import history, playing

pytestmark = pytest.mark.filterwarnings("error")


class Recorder:
    """Answers each item with itself, when `gate` is open, or fails with `error`."""

    def __init__(self, **limits: int) -> None:
        self.batches: list[list[bytes]] = []
        self.error: SQLEnvError | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        limits = {"max_items": 100, "max_bytes": 10_000, "max_in_flight": 2} | limits
        self.batcher = Batcher(self.send, **limits)

    async def send(self, items: Sequence[bytes]) -> Sequence[bytes]:
        self.batches.append(list(items))
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return items

    async def submit_all(self, items: Sequence[bytes]) -> list[Any]:
        replies = (self.batcher.submit(item) for item in items)
        return await asyncio.gather(*replies, return_exceptions=True)


async def test_tasks_started_together_are_batched_in_every_turn() -> None:
    recorder = Recorder()

    async def episode(name: bytes) -> None:
        for _ in range(5):
            assert await recorder.batcher.submit(name) == name

    await asyncio.gather(*(episode(b"%d" % i) for i in range(20)))
    assert [len(batch) for batch in recorder.batches] == [20] * 5


async def test_items_accumulate_while_the_allowed_batches_are_in_flight() -> None:
    recorder = Recorder(max_in_flight=2)
    recorder.gate.clear()
    waiting: list[asyncio.Future[Any]] = []
    for i in range(10):
        waiting.append(recorder.batcher.submit(b"%d" % i))
        await asyncio.sleep(0.001)
    assert [len(batch) for batch in recorder.batches] == [1, 1]
    recorder.gate.set()
    assert await asyncio.gather(*waiting) == [b"%d" % i for i in range(10)]
    assert [len(batch) for batch in recorder.batches] == [1, 1, 8]


@pytest.mark.parametrize(
    ("limit", "sizes", "batches"),
    [
        ({"max_items": 4}, [1] * 10, [[1] * 4, [1] * 4, [1] * 2]),
        ({"max_bytes": 10}, [6, 4, 30, 1], [[6, 4], [30], [1]]),
    ],
)
async def test_a_batch_is_capped_in_items_and_in_bytes(
    limit: dict[str, int], sizes: list[int], batches: list[list[int]]
) -> None:
    recorder = Recorder(**limit)
    await recorder.submit_all([b"x" * size for size in sizes])
    assert [[len(item) for item in batch] for batch in recorder.batches] == batches


async def test_a_failed_batch_fails_only_its_own_items() -> None:
    recorder = Recorder()
    recorder.error = InternalError("broken", url="u")
    errors = await recorder.submit_all([b"x"] * 3)
    assert [(type(one), str(one)) for one in errors] == [(InternalError, "broken")] * 3
    errors[0].details["attempts"] = 8  # each waiter has its own, with details of its own
    assert [one.details for one in errors[1:]] == [{"url": "u"}] * 2
    recorder.error = None
    assert await recorder.batcher.submit(b"y") == b"y"


async def test_a_cancelled_item_is_not_sent_and_does_not_disturb_its_batch() -> None:
    recorder = Recorder()
    kept, unsent = recorder.batcher.submit(b"kept"), recorder.batcher.submit(b"unsent")
    sent = recorder.batcher.submit(b"sent")
    unsent.cancel()
    recorder.gate.clear()
    await asyncio.sleep(0.001)
    sent.cancel()
    recorder.gate.set()
    assert await kept == b"kept"
    assert recorder.batches == [[b"kept", b"sent"]]


@pytest.mark.parametrize("ticks", [0, 1, 3])
async def test_close_answers_every_waiter_and_leaves_no_task(ticks: int) -> None:
    recorder = Recorder(max_in_flight=1, max_items=2)
    recorder.gate.clear()
    waiting = [recorder.batcher.submit(b"x") for _ in range(5)]
    for _ in range(ticks):  # before, at and after the start of the first batch
        await asyncio.sleep(0)
    await recorder.batcher.close()
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [ServerUnreachable] * 5
    with pytest.raises(ServerUnreachable, match="closed"):
        recorder.batcher.submit(b"x")


# -- the client's batches


async def test_concurrent_episodes_share_requests() -> None:
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


async def test_batch_size_and_batches_in_flight_are_limited() -> None:
    async with playing(max_batch=10, batches_in_flight=2) as (server, client):
        server.delay_s = 0.002
        await client.reset_many([{}] * 95)
        assert server.sent("/reset_batch") == [10] * 9 + [5]
        assert server.most_in_flight == 2


async def test_one_bad_item_fails_alone() -> None:
    async with playing("e0", "e1", "e2", "e3") as (server, client):
        actions = ["QUERY: 1", "nonsense", "QUERY: \ud800", "QUERY: 1"]
        replies = await client.step_many((f"e{i}", action) for i, action in enumerate(actions))
        kinds = [type(reply).__name__ for reply in replies]
        assert kinds == ["StepResult", "ActionParseError", "InvalidRequest", "StepResult"]
        assert server.sent("/step_batch") == [3]  # an item that is not JSON is not sent
        # the episode continues
        assert history(await client.step("e1", "QUERY: 1")) == ["QUERY: 1"]
