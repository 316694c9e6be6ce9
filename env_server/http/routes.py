"""The wire over plain HTTP: parse a request, call the pool, send its bytes.

Bodies go from bytes to pydantic and replies from pydantic to bytes, once each; a batch joins the
bytes of its items. Nothing here runs in another thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.types import DecoratedCallable
from pydantic import BaseModel
from pydantic_core import to_json

from env_server.http import openapi
from env_server.http.openapi import body_of, errors, query_of
from env_server.http.requests import parse, parse_item, with_gateway_id
from env_server.http.responses import json_reply
from env_server.http.work import in_time, incoming, run_batch, service_of
from env_server.telemetry import CONTENT_TYPE
from shared import models
from shared.actions import SQLAction

EpisodeQuery = Annotated[str, Query(description="The id in the reply to the reset.")]
MovedQuery = Annotated[
    str, Query(description="If given: it ended elsewhere, so only an unfinished copy is dropped.")
]
EpisodePath = Annotated[str, Path(description="The id in the reply to the reset.")]

episodes = APIRouter(tags=["episodes"])
data = APIRouter(tags=["data"])
server = APIRouter(tags=["server"])
operator = APIRouter(tags=["operator"])
T = TypeVar("T")


def _post(
    path: str, body: type[BaseModel], reply: type[BaseModel], *statuses: int
) -> Callable[[DecoratedCallable], DecoratedCallable]:
    responses = errors(*sorted((*statuses, 408, 413, 422, 429, 500, 503)))
    return episodes.post(
        path, response_model=reply, responses=responses, openapi_extra=body_of(body)
    )


def _get_page(
    router: APIRouter, path: str, query: type[BaseModel], reply: type[BaseModel]
) -> Callable[[DecoratedCallable], DecoratedCallable]:
    extra, responses = query_of(query), errors(422, 503)
    return router.get(path, response_model=reply, responses=responses, openapi_extra=extra)


@_post("/reset", models.ResetRequest, models.ResetResult, 400, 403, 404, 409)
async def reset(request: Request) -> Response:
    """Start an episode, or rebuild one by replaying its `actions`; returns the last one's result.

    The id is that of the body, else a new one that nobody can guess. It starts with the header
    X-Episode-Id and a colon, if a gateway sends one.
    """
    async with incoming(request) as body:
        wanted = with_gateway_id(parse(models.ResetRequest, body), request)
        return json_reply(await in_time(request, service_of(request).pool.reset, wanted))


@_post("/step", models.StepRequest, models.StepResult, 400, 404, 409)
async def step(request: Request) -> Response:
    """Take a step. With `step` it is safe to retry: the reply is the same, and it counts once."""
    async with incoming(request) as body:
        wanted = parse(models.StepRequest, body)
        return json_reply(await in_time(request, service_of(request).pool.step, wanted))


@_post("/reset_batch", models.ResetBatchRequest, openapi.ResetBatchReply)
async def reset_batch(request: Request) -> Response:
    """Start many episodes in one call; returns one result or error each, in order."""
    async with incoming(request) as body:
        resets, play = parse(models.ResetBatchRequest, body).resets, service_of(request).pool.reset
        return await run_batch(request, resets, models.ResetRequest, play)


@_post("/step_batch", models.StepBatchRequest, openapi.StepBatchReply)
async def step_batch(request: Request) -> Response:
    """Send many steps in one call; returns one result or error each, in order."""
    async with incoming(request) as body:
        steps, play = parse(models.StepBatchRequest, body).steps, service_of(request).pool.step
        return await run_batch(request, steps, models.StepRequest, play)


@episodes.get("/state", response_model=models.SQLState, responses=errors(404, 422, 429, 500, 503))
async def state(request: Request, episode_id: EpisodeQuery) -> Response:
    """Return an episode's state, without gold data."""
    return json_reply(await in_time(request, service_of(request).pool.state, episode_id))


@episodes.delete(
    "/episodes/{episode_id}",
    response_model=models.SQLState,
    responses=errors(404, 422, 429, 500, 503),
)
async def close(request: Request, episode_id: EpisodePath, moved: MovedQuery = "") -> Response:
    """Close an episode, abandoning an unfinished one; returns its last state."""
    call = partial(service_of(request).pool.close, moved=bool(moved))
    return json_reply(await in_time(request, call, episode_id))


# -- what a reset can draw
#
# Every key may read it: it shows what resets with that key show too, and nothing about an answer
# (no gold, no type, no tables). Open questions, which a reset must name, are not listed.


@_get_page(data, "/questions", models.QuestionsRequest, models.QuestionPage)
async def questions(request: Request) -> Response:
    """List the questions that a reset can draw, by split and id; nothing about their answers.

    Questions without gold are not listed.
    """
    wanted = parse_item(models.QuestionsRequest, _asked(request))
    found = service_of(request).pool.bank.matching(wanted.split, wanted.difficulty, wanted.db_id)
    part, place = _page(found, wanted)
    listed = [
        models.ListedQuestion(
            question_id=question.question_id,
            question=question.question_text,
            db_id=question.database_name,
            split=split,
            difficulty=question.difficulty,
        )
        for split, question in part
    ]
    return json_reply(models.QuestionPage(**place, questions=listed))


@_get_page(data, "/databases", models.PageRequest, models.DatabasePage)
async def databases(request: Request) -> Response:
    """List the databases that a reset can draw questions about, by id."""
    wanted = parse_item(models.PageRequest, _asked(request))
    part, place = _page(service_of(request).pool.bank.drawable_counts, wanted)
    listed = [models.ListedDatabase(db_id=db_id, questions=counts) for db_id, counts in part]
    return json_reply(models.DatabasePage(**place, databases=listed))


def _asked(request: Request) -> dict[str, Any]:
    """Return the fields of a query; one that is given several times has a list."""
    query = request.query_params
    return {name: every if (every := query.getlist(name))[1:] else every[0] for name in query}


def _page(entries: Sequence[T], wanted: models.PageRequest) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the wanted part of a list, and the fields that say where it is."""
    end = wanted.offset + wanted.limit
    more = end if end < len(entries) else None
    return entries[wanted.offset : end], {"total": len(entries), "next_offset": more}


# -- the server


@server.head("/health", include_in_schema=False)
@server.get("/health", response_model=openapi.Status)
async def health() -> Response:
    """Report that the process answers; `/ready` reports whether episodes can start."""
    return json_reply(b'{"status":"healthy"}')


@server.head("/ready", include_in_schema=False)
@server.get("/ready", response_model=openapi.Status, responses=errors(503))
async def ready(request: Request) -> Response:
    """Return 200 if episodes can start; 503 while starting, draining or without a SQL worker.

    If only some SQL workers start, `problem` says why.
    """
    service = service_of(request)
    service.check_ready()
    status = openapi.Status(status="ready", problem=service.sql.problem)
    return json_reply(status.model_dump_json(exclude_none=True).encode())


@server.get("/metadata", response_model=models.ServerMetadata, responses=errors(503))
async def metadata(request: Request) -> Response:
    """Describe the server. Servers with equal `digest` give equal replies, to the byte."""
    return json_reply(service_of(request).metadata)


_SCHEMAS = to_json(
    {
        "action": SQLAction.model_json_schema(),
        "observation": models.SQLObservation.model_json_schema(),
        "state": models.SQLState.model_json_schema(),
    }
)


@server.get("/schema", response_model=dict[str, dict[str, Any]])
async def schema() -> Response:
    """Return the JSON schemas of an action, an observation and a state."""
    return json_reply(_SCHEMAS)


# -- what operators may see and agents may not; no gold data


@operator.get(
    "/metrics", response_class=Response, responses=errors() | {200: {"content": {"text/plain": {}}}}
)
async def metrics(request: Request) -> Response:
    """Return the server's metrics in Prometheus's format."""
    return Response(request.app.state.metrics.text(), headers={"content-type": CONTENT_TYPE})


@_get_page(operator, "/operator/tries", models.PageRequest, models.TriesPage)
async def tries(request: Request) -> Response:
    """List the tries of questions by agents' keys since the server's start, most tries first.

    A try is an ANSWER that was judged right or wrong. Rebuilding an ended episode adds none.
    """
    wanted = parse_item(models.PageRequest, _asked(request))
    kept = service_of(request).pool.store.tries
    every = [(one.key, *counted) for one in kept for counted in one.questions.items()]
    every.sort(key=lambda entry: entry[2].tries, reverse=True)
    part, place = _page(every, wanted)
    listed = [
        models.QuestionTries(key=key, question_id=asked, **asdict(count))
        for key, asked, count in part
    ]
    return json_reply(models.TriesPage(**place, tries=listed))
