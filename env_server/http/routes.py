"""The wire over plain HTTP: parse a request, call the pool, send its bytes.

Bodies go from bytes to pydantic and replies from pydantic to bytes, once each; a batch joins the
bytes of its items. Nothing here runs in another thread.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import to_json

from env_server.http.openapi import ResetBatchReply, Status, StepBatchReply, body_of, errors
from env_server.http.requests import parse, read_body, with_gateway_id
from env_server.http.responses import json_reply
from env_server.http.work import Items, in_time, run_batch, service_of
from shared.actions import SQLAction
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

EpisodeQuery = Annotated[str, Query(description="The id in the reply to the reset.")]
EpisodePath = Annotated[str, Path(description="The id in the reply to the reset.")]

episodes = APIRouter(tags=["episodes"])
server = APIRouter(tags=["server"])


@episodes.post(
    "/reset",
    response_model=ResetResult,
    responses=errors(400, 403, 404, 408, 409, 413, 422, 429, 500, 503),
    openapi_extra=body_of(ResetRequest, required=False),
)
async def reset(request: Request) -> Response:
    """Start an episode, or rebuild one by replaying its `actions`; returns the last one's result.

    The id is that of the body, else a new one that nobody can guess. It starts with the header
    X-Episode-Id and a colon, if a gateway sends one.
    """
    service = service_of(request)
    wanted = parse(ResetRequest, await read_body(request, service.settings))
    return await in_time(request, service.pool.reset, with_gateway_id(wanted, request))


@episodes.post(
    "/step",
    response_model=StepResult,
    responses=errors(400, 404, 408, 409, 413, 422, 429, 500, 503),
    openapi_extra=body_of(StepRequest),
)
async def step(request: Request) -> Response:
    """Take a step. With `step` it is safe to retry: the reply is the same, and it counts once."""
    service = service_of(request)
    body = await read_body(request, service.settings)
    return await in_time(request, service.pool.step, parse(StepRequest, body))


@episodes.post(
    "/reset_batch",
    response_model=ResetBatchReply,
    responses=errors(408, 413, 422, 429, 500, 503),
    openapi_extra=body_of(ResetBatchRequest),
)
async def reset_batch(request: Request) -> Response:
    """Start many episodes in one call; returns one result or error each, in order."""
    service = service_of(request)
    batch = parse(ResetBatchRequest, await read_body(request, service.settings))
    items = Items(batch.resets, ResetRequest, service.pool.reset, once="episode_id")
    return await run_batch(request, items)


@episodes.post(
    "/step_batch",
    response_model=StepBatchReply,
    responses=errors(408, 413, 422, 429, 500, 503),
    openapi_extra=body_of(StepBatchRequest),
)
async def step_batch(request: Request) -> Response:
    """Send many steps in one call; returns one result or error each, in order."""
    service = service_of(request)
    batch = parse(StepBatchRequest, await read_body(request, service.settings))
    items = Items(batch.steps, StepRequest, service.pool.step, once="step")
    return await run_batch(request, items)


@episodes.get("/state", response_model=SQLState, responses=errors(404, 422, 429, 500, 503))
async def state(request: Request, episode_id: EpisodeQuery) -> Response:
    """Return an episode's state, without gold data."""
    return await in_time(request, service_of(request).pool.state, episode_id)


@episodes.delete(
    "/episodes/{episode_id}", response_model=SQLState, responses=errors(404, 422, 429, 500, 503)
)
async def close(request: Request, episode_id: EpisodePath) -> Response:
    """Close an episode, abandoning an unfinished one; returns its last state."""
    return await in_time(request, service_of(request).pool.close, episode_id)


@server.get("/health", response_model=Status)
async def health() -> Response:
    """Report that the process answers; `/ready` reports whether episodes can start."""
    return json_reply(b'{"status":"healthy"}')


@server.get("/ready", response_model=Status, responses=errors(503))
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
