"""Batching: which items leave together, which wait, and that every waiter gets an answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from shared.client.batching import Batcher
from shared.errors import InternalError, ServerUnreachable, SQLEnvError
from tests.shared.client.fake_server import FakeServer, drive

pytestmark = pytest.mark.filterwarnings("error")


class Recorder:
    """Answers each item with itself, when `gate` is open."""

    def __init__(self, **limits: int) -> None:
        self.batches: list[list[bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.batcher = Batcher(
            self.send, **({"max_items": 100, "max_bytes": 10_000, "max_in_flight": 2} | limits)
        )

    async def send(self, items: Sequence[bytes]) -> list[Any]:
        self.batches.append(list(items))
        await self.gate.wait()
        return [item.decode() for item in items]

    async def submit_all(self, count: int) -> list[Any]:
        return await asyncio.gather(*(self.batcher.submit(b"%d" % i) for i in range(count)))


def test_items_of_one_tick_leave_in_one_batch_and_replies_find_their_items() -> None:
    async def main() -> None:
        recorder = Recorder()
        assert await recorder.submit_all(64) == [str(i) for i in range(64)]
        assert [len(batch) for batch in recorder.batches] == [64]

    drive(main())


def test_tasks_started_together_are_batched_in_every_turn() -> None:
    async def main() -> None:
        recorder = Recorder()

        async def episode(name: bytes) -> None:
            for _ in range(5):
                await recorder.batcher.submit(name)

        await asyncio.gather(*(episode(b"%d" % i) for i in range(20)))
        assert [len(batch) for batch in recorder.batches] == [20] * 5

    drive(main())


def test_items_accumulate_while_the_allowed_batches_are_in_flight() -> None:
    async def main() -> None:
        recorder = Recorder(max_in_flight=2)
        recorder.gate.clear()
        waiting: list[asyncio.Future[Any]] = []
        for i in range(10):
            waiting.append(recorder.batcher.submit(b"%d" % i))
            await asyncio.sleep(0.001)
        assert [len(batch) for batch in recorder.batches] == [1, 1]
        recorder.gate.set()
        assert await asyncio.gather(*waiting) == [str(i) for i in range(10)]
        assert [len(batch) for batch in recorder.batches] == [1, 1, 8]

    drive(main())


def test_a_batch_is_capped_in_items_and_in_bytes() -> None:
    async def main() -> None:
        recorder = Recorder(max_items=4)
        await recorder.submit_all(10)
        assert [len(batch) for batch in recorder.batches] == [4, 4, 2]
        recorder = Recorder(max_bytes=10)
        await asyncio.gather(
            *(recorder.batcher.submit(item) for item in (b"x" * 6, b"x" * 4, b"x" * 30, b"x"))
        )
        assert [[len(item) for item in batch] for batch in recorder.batches] == [[6, 4], [30], [1]]

    drive(main())


def test_a_failed_batch_fails_only_its_own_items() -> None:
    async def main() -> None:
        fail = True

        async def send(items: Sequence[bytes]) -> Sequence[bytes]:
            if fail:
                raise InternalError("broken", url="u")
            return items

        batcher = Batcher(send, max_items=10, max_bytes=100, max_in_flight=1)
        errors = await asyncio.gather(
            *(batcher.submit(b"x") for _ in range(3)), return_exceptions=True
        )
        for error in errors:
            assert isinstance(error, InternalError)
            assert (str(error), error.details) == ("broken", {"url": "u"})
        assert len(set(map(id, errors))) == 3  # each waiter raises its own
        errors[0].details["attempts"] = 8
        assert [error.details for error in errors[1:]] == [{"url": "u"}] * 2, (
            "each has its own details"
        )
        fail = False
        assert await batcher.submit(b"y") == b"y"

    drive(main())


def test_a_missing_reply_is_an_error_for_the_whole_batch() -> None:
    async def main() -> None:
        async def send(items: Sequence[bytes]) -> Sequence[bytes]:
            return items[1:]

        batcher = Batcher(send, max_items=10, max_bytes=100, max_in_flight=1)
        errors = await asyncio.gather(
            *(batcher.submit(b"x") for _ in range(3)), return_exceptions=True
        )
        assert [str(error) for error in errors] == ["2 replies to a batch of 3"] * 3

    drive(main())


def test_a_cancelled_item_that_has_not_left_is_not_sent() -> None:
    async def main() -> None:
        recorder = Recorder()
        kept, dropped = recorder.batcher.submit(b"kept"), recorder.batcher.submit(b"dropped")
        dropped.cancel()
        assert await kept == "kept"
        assert recorder.batches == [[b"kept"]]

    drive(main())


def test_a_cancelled_waiter_does_not_disturb_its_batch() -> None:
    async def main() -> None:
        recorder = Recorder()
        recorder.gate.clear()
        first, second = recorder.batcher.submit(b"1"), recorder.batcher.submit(b"2")
        await asyncio.sleep(0.001)
        first.cancel()
        recorder.gate.set()
        assert await second == "2"

    drive(main())


@pytest.mark.parametrize("ticks", [0, 1, 3])
def test_close_answers_every_waiter_and_leaves_no_task(ticks: int) -> None:
    async def main() -> None:
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

    drive(main())


# -- the client's batches


def test_concurrent_episodes_share_requests() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:

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

    drive(main())


def test_batch_size_and_batches_in_flight_are_limited() -> None:
    async def main() -> None:
        server = FakeServer()
        server.delay_s = 0.002
        async with server.client(max_batch=10, batches_in_flight=2) as client:
            await client.reset_many([{}] * 95)
            assert server.sent("/reset_batch") == [10] * 9 + [5]
            assert server.most_in_flight == 2

    drive(main())


def test_a_batch_too_large_for_the_server_is_halved() -> None:
    async def main() -> None:
        server = FakeServer()
        server.max_items = 8
        async with server.client() as client:
            resets = await client.reset_many([{"question_id": str(i)} for i in range(30)])
            asked = [
                reset.info.question_id for reset in resets if not isinstance(reset, SQLEnvError)
            ]
            assert asked == [str(i) for i in range(30)]
            assert sorted(server.sent("/reset_batch"))[:4] == [7, 7, 8, 8]

    drive(main())


def test_one_bad_item_fails_alone() -> None:
    async def main() -> None:
        server = FakeServer()
        async with server.client() as client:
            ids = [f"e{i}" for i in range(4)]
            await client.reset_many([{"episode_id": name} for name in ids])
            steps = [
                ("e0", "QUERY: 1"),
                ("e1", "nonsense"),
                ("e2", "QUERY: \ud800"),
                ("e3", "QUERY: 1"),
            ]
            replies = await client.step_many(steps)
            assert [type(reply).__name__ for reply in replies] == [
                "StepResult",
                "ActionParseError",
                "InvalidRequest",
                "StepResult",
            ]
            assert server.sent("/step_batch") == [3]  # an item that is not JSON is not sent
            # the episode continues
            assert (await client.step("e1", "QUERY: 1")).observation.step_count == 1

    drive(main())
