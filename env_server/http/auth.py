"""Who may ask what, where the operator of a server has set keys: `Authorization: Bearer KEY`.

    path                        opened by
    /health, /ready             anybody: probes carry no key
    /operator/..., /metrics     the operator's key
    everything else             the agent's key, or the operator's

Where no key is set for a row, it is open; but once agents need a key, theirs never opens the
operator's row.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pydantic import SecretStr

from env_server.settings import ENV_PREFIX, Settings
from shared.errors import Unauthorized

OPEN_PATHS = ("/health", "/ready")
OPERATOR_PATHS = ("/operator", "/metrics")
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class KeyRing:
    """The keys of one server."""

    def __init__(self, settings: Settings) -> None:
        agent, operator = _secret(settings.api_key), _secret(settings.operator_key)
        self._operators = [operator] if operator else []
        self._agents = [agent, *self._operators] if agent else []
        self._closed = bool(agent) and not operator  # to operators, who have no key

    @property
    def empty(self) -> bool:
        return not self._agents and not self._operators

    def check(self, path: str, authorization: bytes | None) -> None:
        """`Unauthorized`, with what to do, unless a request for `path` with that header may pass."""
        if path in OPEN_PATHS:
            return
        operators = any(path == root or path.startswith(root + "/") for root in OPERATOR_PATHS)
        if operators and self._closed:
            raise Unauthorized(
                f"{path} is the operator's, who has no key: start with {ENV_PREFIX}OPERATOR_KEY"
            )
        allowed = self._operators if operators else self._agents
        if not allowed:
            return
        scheme, _, given = (authorization or b"").strip().partition(b" ")
        # Every key is compared, each in constant time: neither tells a near miss from a far one,
        # nor whose it is.
        matches = [hmac.compare_digest(given.strip(), key) for key in allowed]
        if scheme.lower() != b"bearer" or not any(matches):
            whose = f"{ENV_PREFIX}OPERATOR_KEY" if operators else f"{ENV_PREFIX}API_KEY"
            wrong = "the key is not right" if given else "a key is needed"
            raise Unauthorized(
                f"{path}: {wrong}; send 'Authorization: Bearer KEY' with the server's {whose}"
            )


class Keys:
    """ASGI middleware: what the key ring refuses is answered before a byte of its body is read."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        ring: KeyRing,
        refuse: Callable[[Unauthorized], Any],
    ) -> None:
        """`refuse` makes the error's reply, an ASGI app."""
        self.app, self.ring, self.refuse = app, ring, refuse

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                self.ring.check(scope["path"], _header(scope["headers"], b"authorization"))
            except Unauthorized as error:
                return await self.refuse(error)(scope, receive, send)  # type: ignore[no-any-return]
        await self.app(scope, receive, send)


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


def _secret(key: SecretStr | None) -> bytes:
    return key.get_secret_value().encode() if key is not None else b""
