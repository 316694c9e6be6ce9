"""The wire over plain HTTP: parse a request, call the pool, send its bytes. No logic, no thread hop, one error shape.

Bodies go from bytes to pydantic and replies from pydantic to bytes, once each; a batch joins the bytes of its items.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from env_server.service import Service
from shared.actions import EXPECTED, SQLAction
from shared.errors import BodyTooLarge, InternalError, InvalidAction, InvalidRequest, NotReady, SQLEnvError
from shared.models import (
    ResetBatchRequest,
    ResetRequest,
    ResetResult,
    ServerMetadata,
    SQLObservation,
    SQLState,
    StepBatchRequest,
    StepRequest,
    StepResult,
)

log = logging.getLogger(__name__)
Request_ = TypeVar("Request_", bound=BaseModel)


# -- bodies --------------------------------------------------------------------------------------------


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The request's body, or `BodyTooLarge` as soon as its length says so or its bytes do."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > max_bytes:
        raise _too_large(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is over {max_bytes:,} bytes: send less, or raise SQLENV_MAX_BODY_BYTES", max_bytes=max_bytes
    )


def parse(model: type[Request_], body: bytes) -> Request_:
    """`body` as a request, or the error that says what was expected where. No body at all is `{}`."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid(error) from None


def parse_item(model: type[Request_], item: Any) -> Request_:
    """The same for one item of a batch, its JSON already read."""
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError | RequestValidationError) -> InvalidAction | InvalidRequest:
    """What is wrong with a request. An action that is neither an object nor text is the agent's: `InvalidAction`."""
    problems = error.errors()
    first = problems[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        reason = first["msg"].removeprefix("Invalid JSON: ")
        return InvalidRequest(f"the body is not JSON: {reason}; expected an object")
    is_action = place[:1] == ["action"] or (place[:1] == ["actions"] and len(place) > 1)
    if is_action and (first["type"] != "missing" or "SQLAction" in place):
        fields = [f"{p['loc'][-1]}: {p['msg']}" for p in problems if "SQLAction" in p["loc"][:-1]]
        path = ".".join(place[: 2 if place[0] == "actions" else 1])
        reason = f" ({'; '.join(fields[:3])})" if fields else ""
        return InvalidAction(f"{path} is not an action{reason}; {EXPECTED}, or an object of action_type and argument")
    return InvalidRequest("; ".join(f"{'.'.join(map(str, p['loc'])) or 'body'}: {p['msg']}" for p in problems[:5]))


# -- replies -------------------------------------------------------------------------------------------


def json_reply(content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(content, status, headers, media_type="application/json")


def error_bytes(error: SQLEnvError) -> bytes:
    """The one error shape. What is the server's own fault is logged too."""
    if error.status == InternalError.status:
        log.error("%s: %s", error.code, error.message)
    return to_json(error.to_wire())


def error_reply(error: SQLEnvError) -> Response:
    """The error with its status; `retry_after_s` is the Retry-After header too."""
    seconds = error.details.get("retry_after_s")
    headers = None if seconds is None else {"Retry-After": str(seconds)}
    return json_reply(error_bytes(error), error.status, headers)


async def on_sqlenv_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, SQLEnvError)
    return error_reply(error)


async def on_validation_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_reply(invalid(error))


async def on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: unknown paths and wrong methods."""
    assert isinstance(error, HTTPException)
    message = f"{error.detail}: {request.method} {request.url.path}; the endpoints are listed at /docs"
    return json_reply(http_error_bytes(error.status_code, message), error.status_code, dict(error.headers or {}))


def http_error_bytes(status: int, message: str) -> bytes:
    """The one error shape for an error of HTTP's own, whose code is the status's name."""
    code = HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")
    return to_json({"error": {"code": code, "message": message, "retryable": False}})


class CatchAll:
    """ASGI middleware: what nobody foresaw is logged with its traceback and becomes a 500 in the one error shape."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started = False

        async def watch(message: Any) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except ClientDisconnect:
            log.info("%s %s: the client left before it had sent its body", scope["method"], scope["path"])
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            reply = error_reply(InternalError("the server failed on this request; its log says why"))
            await reply(scope, receive, send)


async def settle(reply: Awaitable[bytes]) -> bytes:
    """One item of a batch: its reply or its error, as bytes."""
    try:
        return await reply
    except SQLEnvError as error:
        return error_bytes(error)
    except Exception:
        log.exception("an item of a batch failed")
        return error_bytes(InternalError("the server failed on this item; its log says why"))


# -- the service of a request --------------------------------------------------------------------------


def service_of(request: Request) -> Service:
    service: Service | None = request.app.state.service
    if service is None:
        raise NotReady("the server is starting", retry_after_s=1)
    return service


async def run_batch(
    service: Service, items: list[Any], model: type[Request_], call: Callable[[Request_], Awaitable[bytes]]
) -> Response:
    """Play the items concurrently, those of one episode in their order. -> `{results: [...]}`, one each, in order."""
    limit = service.settings.max_batch
    if len(items) > limit:
        raise BodyTooLarge(
            f"a batch of {len(items):,} items is over the limit of {limit:,}: send several, or raise SQLENV_MAX_BATCH",
            max_batch=limit,
        )

    async def play(item: Any) -> bytes:
        return await call(parse_item(model, item))

    results = await asyncio.gather(*(settle(play(item)) for item in items))
    return json_reply(b'{"results":[%b]}' % b",".join(results))


# -- documentation -------------------------------------------------------------------------------------


class ErrorFields(BaseModel):
    """`code` is for programs, `message` for people: what is wrong and what to do. Some codes have further fields."""

    model_config = ConfigDict(extra="allow")

    code: str
    message: str
    retryable: bool


class ErrorReply(BaseModel):
    """Every status but 200 has this body."""

    error: ErrorFields


class StepBatchReply(BaseModel):
    results: list[StepResult | ErrorReply]


class ResetBatchReply(BaseModel):
    results: list[ResetResult | ErrorReply]


REQUEST_MODELS: list[type[BaseModel]] = [ResetRequest, StepRequest]  # not read by FastAPI, so named to OpenAPI here
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorReply, "description": "invalid_action"},
    404: {"model": ErrorReply, "description": "unknown_episode, unknown_question"},
    409: {"model": ErrorReply, "description": "conflict, behind, digest_mismatch"},
    413: {"model": ErrorReply, "description": "body_too_large"},
    422: {"model": ErrorReply, "description": "invalid_request"},
    429: {"model": ErrorReply, "description": "capacity: Retry-After says when to come again"},
    500: {"model": ErrorReply, "description": "internal"},
    503: {"model": ErrorReply, "description": "not_ready"},
}


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: _ERRORS[status] for status in statuses}


def _body(schema: dict[str, Any], required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _batch_of(key: str, model: type[BaseModel]) -> dict[str, Any]:
    items = {"type": "array", "items": _ref(model)}
    return _body({"type": "object", "required": [key], "properties": {key: items}, "additionalProperties": False})


# -- endpoints -----------------------------------------------------------------------------------------

episodes = APIRouter(tags=["episodes"])
server = APIRouter(tags=["server"])


@episodes.post(
    "/reset",
    response_model=ResetResult,
    responses=_errors(400, 404, 409, 413, 422, 429, 500, 503),
    openapi_extra=_body(_ref(ResetRequest), required=False),
)
async def reset(request: Request) -> Response:
    """Start an episode, or rebuild one by replaying its `actions`; the reply is that to the last of them."""
    service = service_of(request)
    body = await read_body(request, service.settings.max_body_bytes)
    return json_reply(await service.pool.reset(parse(ResetRequest, body)))


@episodes.post(
    "/step",
    response_model=StepResult,
    responses=_errors(400, 404, 409, 413, 422, 500, 503),
    openapi_extra=_body(_ref(StepRequest)),
)
async def step(request: Request) -> Response:
    """Take a step. With `step`, sending it again is safe: the same reply comes back and the budget is charged once."""
    service = service_of(request)
    body = await read_body(request, service.settings.max_body_bytes)
    return json_reply(await service.pool.step(parse(StepRequest, body)))


@episodes.post(
    "/reset_batch",
    response_model=ResetBatchReply,
    responses=_errors(413, 422, 500, 503),
    openapi_extra=_batch_of("resets", ResetRequest),
)
async def reset_batch(request: Request) -> Response:
    """Many resets in one call: one reply or error each, in order. A bad one fails alone."""
    service = service_of(request)
    body = await read_body(request, service.settings.max_body_bytes)
    return await run_batch(service, parse(ResetBatchRequest, body).resets, ResetRequest, service.pool.reset)


@episodes.post(
    "/step_batch",
    response_model=StepBatchReply,
    responses=_errors(413, 422, 500, 503),
    openapi_extra=_batch_of("steps", StepRequest),
)
async def step_batch(request: Request) -> Response:
    """Many steps in one call: one reply or error each, in order. A bad one fails alone."""
    service = service_of(request)
    body = await read_body(request, service.settings.max_body_bytes)
    return await run_batch(service, parse(StepBatchRequest, body).steps, StepRequest, service.pool.step)


@episodes.get("/state", response_model=SQLState, responses=_errors(404, 422, 500, 503))
async def state(request: Request, episode_id: Annotated[str, Query(description="as the reset said")]) -> Response:
    """Where an episode stands, without gold data."""
    return json_reply(await service_of(request).pool.state(episode_id))


@episodes.delete("/episodes/{episode_id}", response_model=SQLState, responses=_errors(404, 422, 500, 503))
async def close(request: Request, episode_id: Annotated[str, Path(description="as the reset said")]) -> Response:
    """Close an episode and free its place; an unfinished one is abandoned. The reply is its last state."""
    return json_reply(await service_of(request).pool.close(episode_id))


class Health(BaseModel):
    status: str


@server.get("/health", response_model=Health)
async def health() -> Response:
    """Whether the process answers. `/ready` says whether it can play."""
    return json_reply(b'{"status":"healthy"}')


@server.get("/ready", response_model=Health, responses=_errors(503))
async def ready(request: Request) -> Response:
    """200 when episodes can start; 503 while the server starts, drains or has no SQL worker."""
    service_of(request).check_ready()
    return json_reply(b'{"status":"ready"}')


@server.get("/metadata", response_model=ServerMetadata, responses=_errors(503))
async def metadata(request: Request) -> Response:
    """What this server plays. Servers of equal `digest` answer the same actions with the same bytes."""
    return json_reply(to_json(service_of(request).metadata))


class Schemas(BaseModel):
    action: dict[str, Any]
    observation: dict[str, Any]
    state: dict[str, Any]


_SCHEMAS = to_json(
    Schemas(
        action=SQLAction.model_json_schema(),
        observation=SQLObservation.model_json_schema(),
        state=SQLState.model_json_schema(),
    )
)


@server.get("/schema", response_model=Schemas)
async def schema() -> Response:
    """The JSON schemas of an action, an observation and a state."""
    return json_reply(_SCHEMAS)
