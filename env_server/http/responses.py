"""Replies as bytes, and every error in the one shape."""

import logging
import time
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from env_server.telemetry import OTHER, REFUSALS, Metrics, episode_of
from shared.console import printable
from shared.errors import DigestMismatch, InternalError, InvalidRequest, SQLEnvError, Unauthorized

log = logging.getLogger(__name__)
refusals = logging.getLogger(REFUSALS)


def json_reply(reply: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a reply, a model or the bytes of its JSON, as a response."""
    body = reply if isinstance(reply, bytes) else to_json(reply)
    return Response(body, status, headers, media_type="application/json")


def page_headers(scripts: str, styles: str, images: str = "data:") -> dict[str, str]:
    """Return the headers of a page that may run, show and load nothing but what these allow, and
    call nothing but this server."""
    policy = (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src {images}; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def count_error(error: SQLEnvError, metrics: Metrics) -> None:
    """Count an error that a client gets; log it too if it is the server's own fault, or the sign of
    an upgrade."""
    metrics.errors.labels(error.code).inc()
    if isinstance(error, DigestMismatch):
        message = printable(error.message, "")
        refusals.warning("refused an episode of other data or rules: %s", message)
    if error.status == InternalError.status:
        log.error("%s: %s", error.code, error.message, extra=episode_of(error))


def as_error(error: Exception) -> SQLEnvError:
    """Return what a client gets for an exception. The text of a fault only goes to the log."""
    if isinstance(error, SQLEnvError):
        return error
    log.error("a request, or an item of one, failed", exc_info=error, extra=episode_of(error))
    return InternalError("the server failed on this request; see its log")


def error_bytes(error: SQLEnvError, metrics: Metrics) -> bytes:
    """Return an error in the one shape, and count it."""
    count_error(error, metrics)
    return to_json(error.to_wire())


def error_reply(error: SQLEnvError, metrics: Metrics) -> Response:
    """Return an error with its status; `retry_after_s` becomes the Retry-After header too."""
    headers = {}
    if (seconds := error.details.get("retry_after_s")) is not None:
        headers["Retry-After"] = str(seconds)
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return json_reply(error_bytes(error, metrics), error.status, headers)


async def on_sqlenv_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SQLEnvError)
    return error_reply(error, request.app.state.metrics)


async def on_validation_error(request: Request, error: Exception) -> Response:
    """Handle a parameter that FastAPI refuses: one that is missing, as all are strings."""
    assert isinstance(error, RequestValidationError)
    names = ", ".join(str(problem["loc"][-1]) for problem in error.errors())
    problem = InvalidRequest(f"{names}: missing; expected in the query, as ?{names}=...")
    return error_reply(problem, request.app.state.metrics)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Handle errors of HTTP itself: unknown paths, wrong methods, bodies that are too slow."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    request.app.state.metrics.errors.labels(http_code(status)).inc()
    path = request.url.path
    shown = path[:80] + ("..." if len(path) > 80 else "")
    message = f"{error.detail}: {request.method} {shown}; see /docs for the endpoints"
    return json_reply(http_error_bytes(status, message), status, dict(error.headers or {}))


def http_error_bytes(status: int, message: str) -> bytes:
    """Return an error of HTTP in the one shape. Only 408, a slow body, is retryable."""
    error = {"code": http_code(status), "message": message, "retryable": status == 408}
    return to_json({"error": error})


def http_code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")


class CatchAll:
    """ASGI middleware: replies 500 to unexpected exceptions, and measures every request's time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        began = time.perf_counter()
        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            log.info("%s: the client left before it got its reply", scope["path"])
        except Exception as error:
            fault = as_error(error)
            if started:
                raise
            await error_reply(fault, self.metrics)(scope, receive, send)
        finally:
            route = getattr(scope.get("route"), "path", OTHER)
            self.metrics.request_seconds.labels(route).observe(time.perf_counter() - began)
