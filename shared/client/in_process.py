"""An ASGI app as an httpx transport, with its lifespan: the client and the server in one process,
without a socket."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Self

import httpx
from asgi_lifespan import LifespanManager

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class InProcessTransport(httpx.AsyncBaseTransport):
    """Runs `app`: its lifespan from `async with` to `aclose`, and each request as a plain call.

    Raises what the app raises at its start and end. An exception of the app in a request is a 500
    reply, as it is over a socket.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lifespan: LifespanManager | None = None
        self._requests: httpx.ASGITransport | None = None

    async def __aenter__(self) -> Self:
        if self._lifespan is not None:
            raise RuntimeError("this client was opened before; make another with in_process(app)")
        # No time limits: a server may load its data for minutes.
        self._lifespan = LifespanManager(self._run, startup_timeout=None, shutdown_timeout=None)
        await self._lifespan.__aenter__()
        self._requests = httpx.ASGITransport(self._lifespan.app, raise_app_exceptions=False)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._requests is None:
            remedy = "use the client inside 'async with' or 'with'"
            raise RuntimeError(f"the app in this process is not running; {remedy}")
        return await self._requests.handle_async_request(request)

    async def aclose(self) -> None:
        if self._requests is not None and self._lifespan is not None:
            self._requests = None
            await self._lifespan.__aexit__(None, None, None)

    async def _run(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            # `LifespanManager` gives all requests one dict; servers give each a copy.
            scope = {**scope, "state": dict(scope["state"])}
        await self._app(scope, receive, send)
