"""Batching: many small requests that are made at once leave as one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from shared.errors import ServerUnreachable, SQLEnvError

Send = Callable[[Sequence[bytes]], Awaitable[Sequence[object]]]
Item = tuple[bytes, asyncio.Future[object]]  # with the future of its reply


class Batcher:
    """Gathers the items of one tick of the event loop and sends them in batches.

    While `max_in_flight` batches are under way, further items wait, so batches grow with the load.
    `send` returns one reply per item, in order. A single item may be over `max_bytes`.
    """

    def __init__(self, send: Send, *, max_items: int, max_bytes: int, max_in_flight: int) -> None:
        self._send = send
        self._max_items, self._max_bytes = max_items, max_bytes
        self._max_in_flight = max_in_flight
        self._pending: deque[Item] = deque()
        self._in_flight: dict[asyncio.Task[None], list[Item]] = {}
        self._flush_due = False
        self._closed = False

    def submit(self, item: bytes) -> asyncio.Future[object]:
        """Return the future of `item`'s reply. It fails with what `send` raised; cancelling it
        drops the item."""
        if self._closed:
            raise closed_error()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        self._schedule_flush()
        return future

    async def close(self) -> None:
        """End all batches under way; whoever waits for a reply gets `ServerUnreachable`."""
        self._closed = True
        waiting = [*self._pending, *(item for batch in self._in_flight.values() for item in batch)]
        self._pending.clear()
        tasks = list(self._in_flight)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _fail(waiting, closed_error())

    def _schedule_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        while self._pending and len(self._in_flight) < self._max_in_flight:
            if batch := self._take():
                task = asyncio.get_running_loop().create_task(self._deliver(batch))
                self._in_flight[task] = batch
                task.add_done_callback(self._returned)

    def _take(self) -> list[Item]:
        batch: list[Item] = []
        size_bytes = 0
        while self._pending and len(batch) < self._max_items:
            item, future = self._pending[0]
            if batch and size_bytes + len(item) > self._max_bytes:
                break
            self._pending.popleft()
            if not future.cancelled():
                batch.append((item, future))
                size_bytes += len(item)
        return batch

    def _returned(self, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(task, None)
        if self._pending:
            self._schedule_flush()

    async def _deliver(self, batch: Sequence[Item]) -> None:
        try:
            replies = await self._send([item for item, _ in batch])
        except Exception as error:
            _fail(batch, error)
            return
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)


def closed_error() -> ServerUnreachable:
    """Return the error of a closed client, which no retry helps (`attempts`)."""
    return ServerUnreachable("this client was closed; open another", attempts=0)


def _fail(batch: Iterable[Item], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(own_copy(error) if isinstance(error, SQLEnvError) else error)


def own_copy(error: SQLEnvError) -> SQLEnvError:
    """Return a waiter's own copy of an error: each has its own traceback and details."""
    own = type(error)(error.message, **error.details)
    own.__cause__ = error
    return own
