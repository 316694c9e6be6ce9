"""Authorization by `Authorization: Bearer KEY`, if the server's settings have keys.

    path                   opened by
    /health, /ready        anyone: probes send no key
    /docs, /openapi.json   anyone: browsers send no key, and the page shows no data
    /operator/...          the operator's key; without one, anyone if the server listens on
                           loopback and has no other key
    /signin                the operator's key, if the server has one (of `env_server.page`)
    /metrics               the operator's key; without one, anyone if the server has no other key
    everything else        every key; anyone if neither a trainer's nor an agent's is set

On the page's paths (`/`, `/signin`, `/page/...`) browsers send the key as the password of HTTP's
Basic scheme, with any name; on other paths they may not, since a form of any page sends it along.

A request without a key is answered only under localhost, an IP address, a name that no site can own
(`PRIVATE_NAMES`, or without a dot) or one of the setting `hosts`; on the first two rows' paths
under any name. Otherwise a site could send requests from a browser that reaches the server, by a
name of its own that leads to the server's address (DNS rebinding).

Whatever its key, a request with the Origin of another site's page is refused, except on the first
two rows' paths: browsers let any page send forms, and add the password of the Basic scheme to them.

Each key is a `Caller`: the trainer, `agent-1`, `agent-2`, ... in the order of the setting, and the
operator. The trainer may have several keys, so that a new one can replace an old one; metrics name
them `trainer-1`, `trainer-2`, ...
"""

import hmac
import logging
from base64 import b64decode
from functools import partial
from ipaddress import ip_address

from starlette._utils import get_route_path
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from env_server.http.responses import error_reply
from env_server.settings import ENV_PREFIX, Settings
from env_server.store import ANYONE, Caller
from env_server.telemetry import REFUSALS, Metrics
from shared.console import printable
from shared.errors import Forbidden, Unauthorized

log = logging.getLogger(REFUSALS)
DOCUMENT, SWAGGER, SCRIPTS = "/openapi.json", "/docs", "/docs/scripts"
OPEN_PATHS = ("/health", "/ready", DOCUMENT, SWAGGER)
OPERATOR, METRICS = "/operator", "/metrics"
SENT_KEY = "sent_key"  # in the state of a connection's scopes: what notes that it sent one
HOME, SIGN_IN, PAGE = "/", "/signin", "/page"
PRIVATE_NAMES = (".localhost", ".local", ".internal", ".svc")  # .local: of clusters too
numbered = partial(enumerate, start=1)
CHALLENGE = 'Basic realm="SQLEnv: any name, and a key of the server as the password"'


def caller_of(request: HTTPConnection) -> Caller:
    caller: Caller = request.scope["state"]["caller"]
    return caller


def client_of(request: HTTPConnection) -> str:
    """Return what fairness and queue bounds count by: a key, or the connection without keys."""
    peer = request.client
    return caller_of(request).owner or (f"{peer.host}:{peer.port}" if peer else "unknown")


def is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(SCRIPTS + "/")


def is_page(path: str) -> bool:
    return path in (HOME, SIGN_IN) or path.startswith(PAGE + "/")


def password_of(credentials: bytes) -> bytes:
    """Return the password of HTTP's Basic scheme; nothing if the credentials are malformed."""
    try:
        return b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def closed_to_operators(settings: Settings) -> list[str]:
    """Return the operator's paths that no key opens, since the server has no operator's key."""
    if settings.operator_key:
        return []
    if settings.api_key or settings.agents:
        return [OPERATOR, METRICS]
    return [] if is_loopback(settings.host) else [OPERATOR]


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_name(host: str, allowed: frozenset[str]) -> None:
    """Raise `Forbidden` if a Host header has a name that a site may own and `allowed` lacks."""
    name = host.lower().partition(":")[0].rstrip(".")
    is_address = name.rpartition(".")[2].isdecimal()
    private = "." not in name or is_address or name.endswith(PRIVATE_NAMES)
    if not private and allowed.isdisjoint((name, "*")):
        raise Forbidden(
            f"host {host[:100]}: without a key this server accepts localhost, an IP address or a "
            "name without a dot; use one of these, send a key, or add the name to "
            f"{ENV_PREFIX}HOSTS"
        )


def check_origin(headers: Headers) -> None:
    """Raise `Forbidden` if a page of another origin sends this: CORS stops no form."""
    origin = headers.get("origin", "").lower()
    if origin and origin.partition("://")[2] != headers.get("host", "").lower():
        raise Forbidden(
            f"a page of {origin[:100]} sent this: only pages of this server may call it, by the "
            "address in the Host header; programs send no Origin header"
        )


class Keys:
    """ASGI middleware that answers what needs another key before any of its body is read."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics
        keys = {f"trainer-{n}": (key, Caller("trainer")) for n, key in numbered(settings.trainers)}
        for n, key in numbered(settings.agents):
            keys[f"agent-{n}"] = key, Caller(f"agent-{n}", is_agent=True)
        self._open = not keys  # to requests without a key
        self._has_operator = settings.operator_key is not None
        if settings.operator_key:
            key = settings.operator_key.get_secret_value()
            keys["operator"] = key, Caller("operator", is_operator=True)
        self._keys = [(name, key.encode(), caller) for name, (key, caller) in keys.items()]
        self._closed = closed_to_operators(settings)
        self._hosts = frozenset(settings.host_names)

    def check(self, path: str, authorization: bytes) -> Caller:
        """Return who calls, and count it, or raise `Unauthorized` if the path is closed."""
        if is_open(path):
            return ANYONE
        roots = (OPERATOR, METRICS, SIGN_IN)
        root = next((r for r in roots if path == r or path.startswith(r + "/")), None)
        if root in self._closed:
            raise Unauthorized(
                f"{path} needs the operator's key, and this server has none: start it with "
                f"{ENV_PREFIX}OPERATOR_KEY"
            )
        scheme, _, given = authorization.strip().partition(b" ")
        if is_page(path) and scheme.lower() == b"basic":
            scheme, given = b"bearer", password_of(given.strip())
        # Every key is compared in constant time: the reply's time tells neither how much of a key
        # is right nor whose it is.
        found = "none", ANYONE
        for name, key, caller in self._keys:
            if hmac.compare_digest(given.strip(), key) and scheme.lower() == b"bearer":
                found = name, caller
        name, caller = found
        needs_operator = root is not None and self._has_operator
        if caller.is_operator if needs_operator else caller.owner or self._open:
            self.metrics.requests.labels(name).inc()
            return caller
        needed = f"{ENV_PREFIX}OPERATOR_KEY" if needs_operator else f"{ENV_PREFIX}API_KEY"
        problem = "wrong key" if given else "a key is needed"
        raise Unauthorized(f"{path}: {problem}; send 'Authorization: Bearer <{needed}>'")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = Headers(scope=scope)
            path = get_route_path(scope)  # as the router sees it, without a --root-path
            try:
                caller = self.check(path, headers.get("authorization", "").encode("latin-1"))
                if not (caller.owner or is_open(path)):
                    check_name(headers.get("host", ""), self._hosts)
                if not is_open(path):
                    check_origin(headers)
            except (Unauthorized, Forbidden) as error:
                address = scope["client"][0] if scope.get("client") else "an unknown address"
                reason = printable(error.message[:300], "")
                log.warning("refused a request of %s: %s", address, reason)
                reply = error_reply(error, self.metrics)
                if isinstance(error, Unauthorized) and is_page(path):
                    reply.headers["WWW-Authenticate"] = CHALLENGE
                return await reply(scope, receive, send)
            state = scope.get("state", {})
            if caller.owner and SENT_KEY in state:
                state[SENT_KEY]()
            scope["state"] = {**state, "caller": caller}
        await self.app(scope, receive, send)
