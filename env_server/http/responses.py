"""Replies as bytes, and every error in the one shape."""

import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from env_server.http.requests import invalid
from env_server.logs import blamed
from env_server.metrics import OTHER, Metrics
from shared.errors import InternalError, SQLEnvError, Unauthorized

log = logging.getLogger(__name__)


def json_reply(
    content: bytes, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    return Response(content, status, headers, media_type="application/json")


def error_bytes(error: SQLEnvError, metrics: Metrics) -> bytes:
    """The one error shape. It is counted, and what is the server's own fault is logged too."""
    metrics.errors.labels(error.code).inc()
    if error.status == InternalError.status:
        log.error("%s: %s", error.code, error.message, extra=blamed(error))
    return to_json(error.to_wire())


def error_reply(error: SQLEnvError, metrics: Metrics) -> Response:
    """The error with its status; `retry_after_s` is the Retry-After header too."""
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
    assert isinstance(error, RequestValidationError)
    return error_reply(invalid(error), request.app.state.metrics)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Of HTTP alone: unknown paths, wrong methods, bodies that are too slow."""
    assert isinstance(error, HTTPException)
    request.app.state.metrics.errors.labels(http_code(error.status_code)).inc()
    message = (
        f"{error.detail}: {request.method} {request.url.path}; the endpoints are listed at /docs"
    )
    return json_reply(
        http_error_bytes(error.status_code, message), error.status_code, dict(error.headers or {})
    )


def http_error_bytes(status: int, message: str) -> bytes:
    """The one error shape for an error of HTTP's own. Only a body that was too slow is worth
    sending again."""
    return to_json(
        {"error": {"code": http_code(status), "message": message, "retryable": status == 408}}
    )


def http_code(status: int) -> str:
    """The status's name as an error's code."""
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")


class CatchAll:
    """ASGI middleware: what nobody foresaw is logged with its traceback and becomes a 500 in the
    one error shape.

    It takes the time of every request too, by the path of its route.
    """

    def __init__(self, app: Callable[..., Awaitable[None]], metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False

        async def watch(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        began = time.perf_counter()
        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            log.info(
                "%s %s: the client left before it had sent its body", scope["method"], scope["path"]
            )
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"], extra=blamed(error))
            if started:
                raise
            mine = InternalError("the server failed on this request; its log says why")
            await error_reply(mine, self.metrics)(scope, receive, send)
        finally:
            path = getattr(scope.get("route"), "path", OTHER)
            self.metrics.request_seconds.labels(path).observe(time.perf_counter() - began)
