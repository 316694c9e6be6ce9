"""Authorization by `Authorization: Bearer KEY`, if the server's settings have keys.

    path                        opened by
    /health, /ready             anyone: probes send no key
    /operator/..., /metrics     the operator's key
    everything else             the agent's key, or the operator's

Rows whose key is not set are open, except that the operator's row is closed if only the agent's key
is set.
"""

import hmac

from pydantic import SecretStr
from starlette.types import ASGIApp, Receive, Scope, Send

from env_server.http.responses import error_reply
from env_server.metrics import Metrics
from env_server.settings import ENV_PREFIX, Settings
from shared.errors import Unauthorized

OPEN_PATHS = ("/health", "/ready")
OPERATOR_PATHS = ("/operator", "/metrics")


class Keys:
    """ASGI middleware that answers what needs another key before any of its body is read."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        agent, operator = _secret(settings.api_key), _secret(settings.operator_key)
        self._operators = [operator] if operator else []
        self._agents = [agent, *self._operators] if agent else []
        self._closed = bool(agent) and not operator  # to operators, who have no key

    def check(self, path: str, authorization: bytes) -> None:
        """Raise `Unauthorized`, with what to do, unless the header's value opens the path."""
        if path in OPEN_PATHS:
            return
        operators = any(path == root or path.startswith(root + "/") for root in OPERATOR_PATHS)
        if operators and self._closed:
            raise Unauthorized(
                f"{path} needs the operator's key, and this server has none: start it with "
                f"{ENV_PREFIX}OPERATOR_KEY"
            )
        allowed = self._operators if operators else self._agents
        if not allowed:
            return
        scheme, _, given = authorization.strip().partition(b" ")
        # Every key is compared in constant time: the reply's time tells neither how much of a key
        # is right nor whose it is.
        matches = [hmac.compare_digest(given.strip(), key) for key in allowed]
        if scheme.lower() != b"bearer" or not any(matches):
            needed = f"{ENV_PREFIX}OPERATOR_KEY" if operators else f"{ENV_PREFIX}API_KEY"
            problem = "wrong key" if given else "a key is needed"
            raise Unauthorized(f"{path}: {problem}; send 'Authorization: Bearer <{needed}>'")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = scope["headers"]
            value = next((value for name, value in headers if name == b"authorization"), b"")
            try:
                self.check(scope["path"], value)
            except Unauthorized as error:
                return await error_reply(error, self.metrics)(scope, receive, send)
        await self.app(scope, receive, send)


def _secret(key: SecretStr | None) -> bytes:
    return key.get_secret_value().encode() if key is not None else b""
