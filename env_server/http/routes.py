"""The wire over plain HTTP: parse a request, call the pool, send its bytes.

Bodies go from bytes to pydantic and replies from pydantic to bytes, once each; a batch joins the
bytes of its items. Nothing here runs in another thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import to_json

from env_server.http.openapi import ResetBatchReply, StepBatchReply, batch_of, body_of, errors, ref
from env_server.http.requests import Request_, parse, parse_item, read_body
from env_server.http.responses import error_bytes, json_reply
from env_server.logs import episode_of
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
Call = Callable[[Request_], Awaitable[bytes]]
# an id that a gateway chose, so that it knows where to send the episode's steps
EPISODE_ID_HEADER = "x-episode-id"
EpisodeQuery = Annotated[str, Query(description="The id in the reply to the reset.")]
EpisodePath = Annotated[str, Path(description="The id in the reply to the reset.")]


def service_of(request: Request) -> Service:
    """Return the application's service, or raise `NotReady`."""
    service: Service | None = request.app.state.service
    if service is None:
        raise NotReady("the server is starting", retry_after_s=1)
    return service


def timed_out(settings: Settings) -> TimedOut:
    """Return the error for a request that takes too long."""
    return TimedOut(
        f"not done within {settings.request_timeout_s:g} s, and still running: send it again, with "
        "the same step",
        retry_after_s=1,
    )


async def in_time(service: Service, work: Coroutine[Any, Any, bytes]) -> Response:
    """Return the reply to one request, or raise `TimedOut`.

    The work then continues, and the same request sent again gets its reply.
    """
    task = service.start(work)
    await asyncio.wait((task,), timeout=service.settings.request_timeout_s)
    if not task.done():
        service.start(reply_or_error(service, task))  # logs how it fails
        raise timed_out(service.settings)
    return json_reply(task.result())


async def reply_or_error(service: Service, reply: Awaitable[bytes]) -> bytes:
    """Return a reply, or its error as bytes, for an item of a batch or a late request."""
    try:
        return await reply
    except SQLEnvError as error:
        return error_bytes(error, service.metrics)
    except Exception as error:
        log.exception("an item of a batch, or a late request, failed", extra=episode_of(error))
        fault = InternalError("the server failed on this item; see its log")
        return error_bytes(fault, service.metrics)


async def run_batch(
    service: Service, items: list[Any], model: type[Request_], call: Call[Request_]
) -> Response:
    """Run a batch concurrently, the items of one episode in order; returns `{results: [...]}`.

    Items that are not done in time get `timeout` errors, and continue.
    """
    limit = service.settings.max_batch
    if len(items) > limit:
        raise BodyTooLarge(
            f"a batch of {len(items):,} items is over the limit of {limit:,}: send several, or "
            "raise SQLENV_MAX_BATCH",
            max_batch=limit,
        )

    async def run(item: Any) -> bytes:
        return await call(parse_item(model, item))

    tasks = [service.start(reply_or_error(service, run(item))) for item in items]
    if tasks:
        await asyncio.wait(tasks, timeout=service.settings.request_timeout_s)
    results = [
        task.result() if task.done() else error_bytes(timed_out(service.settings), service.metrics)
        for task in tasks
    ]
    return json_reply(b'{"results":[%b]}' % b",".join(results))


episodes = APIRouter(tags=["episodes"])
server = APIRouter(tags=["server"])


@episodes.post(
    "/reset",
    response_model=ResetResult,
    responses=errors(400, 404, 408, 409, 413, 422, 429, 500, 503),
    openapi_extra=body_of(ref(ResetRequest), required=False),
)
async def reset(request: Request) -> Response:
    """Start an episode, or rebuild one by replaying its `actions`; returns the last one's result.

    The id is that of the body, else that of the header X-Episode-Id, else a new one.
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
    """Take a step. With `step` it is safe to retry: the reply is the same, charged once."""
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
    """Start many episodes in one call; returns one result or error each, in order."""
    service = service_of(request)
    batch = parse(ResetBatchRequest, await read_body(request, service.settings))
    return await run_batch(service, batch.resets, ResetRequest, service.pool.reset)


@episodes.post(
    "/step_batch",
    response_model=StepBatchReply,
    responses=errors(408, 413, 422, 500, 503),
    openapi_extra=batch_of("steps", StepRequest),
)
async def step_batch(request: Request) -> Response:
    """Send many steps in one call; returns one result or error each, in order."""
    service = service_of(request)
    batch = parse(StepBatchRequest, await read_body(request, service.settings))
    return await run_batch(service, batch.steps, StepRequest, service.pool.step)


@episodes.get("/state", response_model=SQLState, responses=errors(404, 422, 500, 503))
async def state(request: Request, episode_id: EpisodeQuery) -> Response:
    """Return an episode's state, without gold data."""
    service = service_of(request)
    return await in_time(service, service.pool.state(episode_id))


@episodes.delete(
    "/episodes/{episode_id}", response_model=SQLState, responses=errors(404, 422, 500, 503)
)
async def close(request: Request, episode_id: EpisodePath) -> Response:
    """Close an episode, abandoning an unfinished one; returns its last state."""
    service = service_of(request)
    return await in_time(service, service.pool.close(episode_id))


@server.get("/health", response_model=dict[str, str])
async def health() -> Response:
    """Report that the process answers; `/ready` reports whether episodes can start."""
    return json_reply(b'{"status":"healthy"}')


@server.get("/ready", response_model=dict[str, str], responses=errors(503))
async def ready(request: Request) -> Response:
    """Return 200 if episodes can start; 503 while starting, draining or without a SQL worker."""
    service_of(request).check_ready()
    return json_reply(b'{"status":"ready"}')


@server.get("/metadata", response_model=ServerMetadata, responses=errors(503))
async def metadata(request: Request) -> Response:
    """Describe the server. Servers with equal `digest` give equal replies, to the byte."""
    return json_reply(to_json(service_of(request).metadata))


_SCHEMAS = to_json(
    {
        "action": SQLAction.model_json_schema(),
        "observation": SQLObservation.model_json_schema(),
        "state": SQLState.model_json_schema(),
    }
)


@server.get("/schema", response_model=dict[str, dict[str, Any]])
async def schema() -> Response:
    """Return the JSON schemas of an action, an observation and a state."""
    return json_reply(_SCHEMAS)
