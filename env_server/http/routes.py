"""The wire over plain HTTP: parse a request, call the pool, send its bytes. No logic, no thread
hop, one error shape.

Bodies go from bytes to pydantic and replies from pydantic to bytes, once each; a batch joins the
bytes of its items.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json

from env_server.http.openapi import ResetBatchReply, StepBatchReply, batch_of, body_of, errors, ref
from env_server.http.requests import Request_, parse, parse_item, read_body
from env_server.http.responses import error_bytes, json_reply
from env_server.logs import blamed
from env_server.service import Service
from env_server.settings import Settings
from shared.actions import SQLAction
from shared.errors import BodyTooLarge, InternalError, NotReady, SQLEnvError, TimedOut
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
# an id that a gateway chose, so that it knows where the episode's steps go
EPISODE_ID_HEADER = "x-episode-id"


# -- the service of a request
# --------------------------------------------------------------------------


def service_of(request: Request) -> Service:
    service: Service | None = request.app.state.service
    if service is None:
        raise NotReady("the server is starting", retry_after_s=1)
    return service


def timed_out(settings: Settings) -> TimedOut:
    return TimedOut(
        f"not done within {settings.request_timeout_s:g} s, and still under way: send it again, with the same step",
        retry_after_s=1,
    )


async def in_time(service: Service, work: Coroutine[Any, Any, bytes]) -> Response:
    """The reply to one request, or `TimedOut`; then the work goes on, and a repeat of the request
    gets its reply."""
    task = service.start(work)
    await asyncio.wait((task,), timeout=service.settings.request_timeout_s)
    if not task.done():
        service.start(settle(service, task))  # nobody else hears how it fails
        raise timed_out(service.settings)
    return json_reply(task.result())


async def settle(service: Service, reply: Awaitable[bytes]) -> bytes:
    """What nobody waits for alone, an item of a batch or what is late: its reply or its error, as
    bytes."""
    try:
        return await reply
    except SQLEnvError as error:
        return error_bytes(error, service.metrics)
    except Exception as error:
        log.exception("an item of a batch, or a request that was late, failed", extra=blamed(error))
        return error_bytes(
            InternalError("the server failed on this item; its log says why"), service.metrics
        )


async def run_batch(
    service: Service,
    items: list[Any],
    model: type[Request_],
    call: Callable[[Request_], Awaitable[bytes]],
) -> Response:
    """Play the items concurrently, those of one episode in their order. -> `{results: [...]}`, one
    each, in order.

    Those that are not done in time are `timeout` errors, and go on.
    """
    limit = service.settings.max_batch
    if len(items) > limit:
        raise BodyTooLarge(
            f"a batch of {len(items):,} items is over the limit of {limit:,}: send several, or raise SQLENV_MAX_BATCH",
            max_batch=limit,
        )

    async def play(item: Any) -> bytes:
        return await call(parse_item(model, item))

    tasks = [service.start(settle(service, play(item))) for item in items]
    if tasks:
        await asyncio.wait(tasks, timeout=service.settings.request_timeout_s)
    results = [
        task.result() if task.done() else error_bytes(timed_out(service.settings), service.metrics)
        for task in tasks
    ]
    return json_reply(b'{"results":[%b]}' % b",".join(results))


# -- endpoints
# -----------------------------------------------------------------------------------------

episodes = APIRouter(tags=["episodes"])
server = APIRouter(tags=["server"])


@episodes.post(
    "/reset",
    response_model=ResetResult,
    responses=errors(400, 404, 408, 409, 413, 422, 429, 500, 503),
    openapi_extra=body_of(ref(ResetRequest), required=False),
)
async def reset(request: Request) -> Response:
    """Start an episode, or rebuild one by replaying its `actions`; the reply is that to the last of
    them.

    Where the body names no episode, its id is that of the header X-Episode-Id, else one made here.
    """
    service = service_of(request)
    wanted = parse(ResetRequest, await read_body(request, service.settings))
    if wanted.episode_id is None and (chosen := request.headers.get(EPISODE_ID_HEADER)):
        checked = parse_item(ResetRequest, {"episode_id": chosen})
        wanted = wanted.model_copy(update={"episode_id": checked.episode_id})
    return await in_time(service, service.pool.reset(wanted))


@episodes.post(
    "/step",
    response_model=StepResult,
    responses=errors(400, 404, 408, 409, 413, 422, 500, 503),
    openapi_extra=body_of(ref(StepRequest)),
)
async def step(request: Request) -> Response:
    """Take a step. With `step`, sending it again is safe: the same reply comes back and the budget
    is charged once."""
    service = service_of(request)
    body = await read_body(request, service.settings)
    return await in_time(service, service.pool.step(parse(StepRequest, body)))


@episodes.post(
    "/reset_batch",
    response_model=ResetBatchReply,
    responses=errors(408, 413, 422, 500, 503),
    openapi_extra=batch_of("resets", ResetRequest),
)
async def reset_batch(request: Request) -> Response:
    """Many resets in one call: one reply or error each, in order. A bad one fails alone."""
    service = service_of(request)
    body = await read_body(request, service.settings)
    return await run_batch(
        service, parse(ResetBatchRequest, body).resets, ResetRequest, service.pool.reset
    )


@episodes.post(
    "/step_batch",
    response_model=StepBatchReply,
    responses=errors(408, 413, 422, 500, 503),
    openapi_extra=batch_of("steps", StepRequest),
)
async def step_batch(request: Request) -> Response:
    """Many steps in one call: one reply or error each, in order. A bad one fails alone."""
    service = service_of(request)
    body = await read_body(request, service.settings)
    return await run_batch(
        service, parse(StepBatchRequest, body).steps, StepRequest, service.pool.step
    )


@episodes.get("/state", response_model=SQLState, responses=errors(404, 422, 500, 503))
async def state(
    request: Request, episode_id: Annotated[str, Query(description="as the reset said")]
) -> Response:
    """Where an episode stands, without gold data."""
    service = service_of(request)
    return await in_time(service, service.pool.state(episode_id))


@episodes.delete(
    "/episodes/{episode_id}", response_model=SQLState, responses=errors(404, 422, 500, 503)
)
async def close(
    request: Request, episode_id: Annotated[str, Path(description="as the reset said")]
) -> Response:
    """Close an episode and free its place; an unfinished one is abandoned. The reply is its last
    state."""
    service = service_of(request)
    return await in_time(service, service.pool.close(episode_id))


class Health(BaseModel):
    status: str


@server.get("/health", response_model=Health)
async def health() -> Response:
    """Whether the process answers. `/ready` says whether it can play."""
    return json_reply(b'{"status":"healthy"}')


@server.get("/ready", response_model=Health, responses=errors(503))
async def ready(request: Request) -> Response:
    """200 when episodes can start; 503 while the server starts, drains or has no SQL worker."""
    service_of(request).check_ready()
    return json_reply(b'{"status":"ready"}')


@server.get("/metadata", response_model=ServerMetadata, responses=errors(503))
async def metadata(request: Request) -> Response:
    """What this server plays. Servers of equal `digest` answer the same actions with the same
    bytes."""
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
