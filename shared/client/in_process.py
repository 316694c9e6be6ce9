"""An ASGI app as an httpx transport, with its lifespan: the client and the server in one process,
without a socket."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any

import httpx

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

END_TIMEOUT_S = 5.0  # an app that has said that it is done returns at once


class InProcessTransport(httpx.AsyncBaseTransport):
    """Runs `app`: its lifespan from `async with` to `aclose`, and each request as a plain call.

    Raises what the app raises at its start. An exception of the app in a request is a 500 reply, as
    over a socket.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._state: dict[str, Any] = {}
        self._requests = httpx.ASGITransport(self._call, raise_app_exceptions=False)
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._lifespan: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "InProcessTransport":
        if self._lifespan is not None:
            raise RuntimeError("this transport is open or was closed; make another")
        scope: Message = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self._state,
        }
        self._lifespan = asyncio.ensure_future(
            self._app(scope, self._to_app.get, self._from_app.put)
        )
        try:
            await self._tell("startup")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._lifespan is None or self._lifespan.done():
            raise RuntimeError(
                "the app in this process is not running; use the client inside 'async with' or 'with'"
            )
        return await self._requests.handle_async_request(request)

    async def aclose(self) -> None:
        if self._lifespan is not None and not self._lifespan.done():
            try:
                await self._tell("shutdown")
            finally:
                await self._end()

    async def _call(self, scope: Message, receive: Any, send: Any) -> None:
        scope["state"] = dict(self._state)
        await self._app(scope, receive, send)

    async def _tell(self, event: str) -> None:
        """Sends `lifespan.<event>` and waits for the app to do it, or raises why it did not."""
        assert self._lifespan is not None
        await self._to_app.put({"type": f"lifespan.{event}"})
        answer = asyncio.ensure_future(self._from_app.get())
        try:
            await asyncio.wait([answer, self._lifespan], return_when=asyncio.FIRST_COMPLETED)
            message = answer.result() if answer.done() else {}
        finally:
            answer.cancel()
        if message.get("type") == f"lifespan.{event}.complete":
            return
        await asyncio.wait([self._lifespan], timeout=END_TIMEOUT_S)
        if self._lifespan.done():
            self._lifespan.result()  # raises what the app raised
        raise RuntimeError(
            f"the app in this process did not complete its {event}: {message.get('message', 'it ended')}"
        )

    async def _end(self) -> None:
        """Leaves no task behind: an app that completed its shutdown returns, one that failed is
        cancelled."""
        assert self._lifespan is not None
        await asyncio.wait([self._lifespan], timeout=END_TIMEOUT_S)
        self._lifespan.cancel()
        await asyncio.gather(self._lifespan, return_exceptions=True)
