"""The work of a request: in time, alone or in a batch, and ended when nobody waits for it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, HTTPConnection

from env_server.http.auth import caller_of, client_of
from env_server.http.requests import LARGE_BYTES, Request_, parse_item, read_body
from env_server.http.responses import as_error, count_error, error_bytes, json_reply
from env_server.service import Service, Task
from env_server.settings import Settings
from env_server.sql.queue import CLIENT
from env_server.store import Caller
from shared.errors import BodyTooLarge, NotReady, ReplyTooLarge, TimedOut

Argument = TypeVar("Argument")
Reply = TypeVar("Reply")
# A request that takes longer is watched for a client that leaves; most take less, and watching
# costs a task.
WATCH_AFTER_S = 0.05
# Actions that a batch starts in one turn of the event loop, 10 us of parsing each.
ACTIONS_PER_TURN = 256
RUNNING = "and still running: send it again, with the same step, or ask for the episode's state"


def service_of(request: HTTPConnection) -> Service:
    """Return the application's service, or raise `NotReady`."""
    service: Service | None = request.app.state.service
    if service is None:
        raise NotReady("the server is starting", retry_after_s=1)
    return service


def timed_out(settings: Settings, state: str = RUNNING) -> TimedOut:
    return TimedOut(f"not done within {settings.request_timeout_s:g} s, {state}", retry_after_s=1)


@asynccontextmanager
async def incoming(request: Request) -> AsyncIterator[bytes]:
    """Read the body of a request whose client may send more, and yield it to be worked on.

    A large one waits until the client's large one before it is answered: so no client fills the
    memory, or makes others wait while its bodies are parsed.
    """
    service, client = service_of(request), client_of(request)
    service.admit(client, 1)
    async with AsyncExitStack() as held:

        async def large() -> None:
            began, settings = time.monotonic(), service.settings
            try:
                async with asyncio.timeout(settings.request_timeout_s):
                    await held.enter_async_context(service.one_large(client))
            except TimeoutError:
                others = f"behind your other requests over {LARGE_BYTES // 1024} KiB"
                raise timed_out(settings, f"{others}: wait for their replies") from None
            request.state.waited_s = time.monotonic() - began

        yield await read_body(request, service.settings, large)


async def in_time(
    request: HTTPConnection,
    call: Callable[[Argument, Caller], Coroutine[Any, Any, Reply]],
    argument: Argument,
) -> Reply:
    """Return the reply to one request, or raise `TimedOut`.

    The work then continues, and the same request sent again gets its reply. The work of a client
    that leaves is cancelled if `request` is a `Request`.
    """
    service, client = service_of(request), _client(request)
    items = 1 + len(getattr(argument, "actions", None) or ())
    service.admit(client, items)
    task = service.start(call(argument, caller_of(request)), client, items)
    try:
        await _wait(request, service, [task])
    finally:
        if not task.done():
            task.add_done_callback(partial(_report_late, service))
    if not task.done():
        raise timed_out(service.settings)
    return task.result()


def _report_late(service: Service, task: Task) -> None:
    """Log and count how a request failed that nobody waits for."""
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        count_error(as_error(error), service.metrics)


async def run_batch(
    request: Request,
    values: Sequence[Any],
    model: type[Request_],
    call: Callable[[Request_, Caller], Awaitable[BaseModel]],
) -> Response:
    """Run `call` on the items of a batch, JSON values of the model; returns `{results: [...]}`.

    Items that are not done in time get `timeout` errors, and continue. Those whose replies would
    make the batch's too large get `reply_too_large`, except for the first.
    """
    service, client, caller = service_of(request), _client(request), caller_of(request)
    count, limit = len(values), service.settings.max_batch
    if count > limit:
        raise BodyTooLarge(
            f"a batch of {count:,} items is over the limit of {limit:,}: send several, or raise "
            "SQLENV_MAX_BATCH",
            max_batch=limit,
        )
    items = [1 + _replayed(value) for value in values]
    before = [0, *accumulate(items)]  # each item's, and at last all
    actions, limit = before[-1] - count, service.settings.max_client_items
    if actions > limit and count > 1:
        raise BodyTooLarge(
            f"a batch with {actions:,} actions to replay is over the limit of {limit:,}: send "
            "several, or raise SQLENV_MAX_CLIENT_ITEMS",
            max_client_items=limit,
        )
    service.admit(client, before[-1])
    used_bytes, most = 0, service.settings.max_reply_bytes

    async def run(value: Any, turn: int) -> bytes:
        nonlocal used_bytes
        for _ in range(turn):
            await asyncio.sleep(0)
        try:
            reply = to_json(await call(parse_item(model, value), caller))
        except Exception as error:
            reply = error_bytes(as_error(error), service.metrics)
        if used_bytes and used_bytes + len(reply) > most:
            problem = ReplyTooLarge(
                f"the batch's replies are over {most:,} bytes: send fewer items, or raise "
                "SQLENV_MAX_REPLY_BYTES",
                max_bytes=most,
            )
            return error_bytes(problem, service.metrics)
        used_bytes += len(reply)
        return reply

    tasks = [
        service.start(run(value, first // ACTIONS_PER_TURN), client, size)
        for value, first, size in zip(values, before, items, strict=False)
    ]
    await _wait(request, service, tasks)
    late = timed_out(service.settings)
    results = [
        task.result() if task.done() else error_bytes(late, service.metrics) for task in tasks
    ]
    return json_reply(b'{"results":[%b]}' % b",".join(results))


def _replayed(value: Any) -> int:
    """Return how many actions an item of a batch asks to replay."""
    actions = value.get("actions") if isinstance(value, dict) else None
    return len(actions) if isinstance(actions, list) else 0


def _client(request: HTTPConnection) -> str:
    """Return who sends a request, and let it own the SQL that the request runs."""
    client = client_of(request)
    CLIENT.set(client)
    return client


async def _wait(request: HTTPConnection, service: Service, tasks: Sequence[Task]) -> None:
    """Wait for work until it is done or its time is over; the time spent waiting for other large
    requests counts. If the client leaves, end it and raise `ClientDisconnect`."""
    waited_s = getattr(request.state, "waited_s", 0.0)
    most_s = max(0.0, service.settings.request_timeout_s - waited_s)
    first_s = min(WATCH_AFTER_S, most_s)
    try:
        pending = (await asyncio.wait(tasks, timeout=first_s))[1] if tasks else None
        if pending:
            work = asyncio.create_task(asyncio.wait(pending, timeout=most_s - first_s))
            gone = asyncio.create_task(_disconnected(request))
            try:
                await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise ClientDisconnect
            finally:
                work.cancel()
                gone.cancel()
    except BaseException:  # also where this request is cancelled
        for task in tasks:
            task.cancel()
        raise


async def _disconnected(request: HTTPConnection) -> None:
    """Return when the client of a plain request leaves, and never for any other connection."""
    if not isinstance(request, Request):  # a WebSocket's session receives its own messages
        await asyncio.Event().wait()
        return
    while (await request.receive())["type"] != "http.disconnect":
        pass
