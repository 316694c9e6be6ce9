"""`GET /questions`, `GET /databases`: what a reset can draw.

Every key may read them: they show what resets with that key show too, and nothing about an answer
(no gold, no type, no tables). Open questions, which a reset must name, are not listed.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from env_server.http.openapi import errors, query_of
from env_server.http.requests import parse_item
from env_server.http.responses import json_reply
from env_server.http.work import service_of
from shared.models import (
    DatabasePage,
    ListedDatabase,
    ListedQuestion,
    PageRequest,
    QuestionPage,
    QuestionsRequest,
)

T = TypeVar("T")
listing = APIRouter(tags=["data"])


@listing.get(
    "/questions",
    response_model=QuestionPage,
    responses=errors(422, 503),
    openapi_extra=query_of(QuestionsRequest),
)
async def questions(request: Request) -> Response:
    """List the questions that a reset can draw, by split and id; nothing about their answers.

    Questions without gold are not listed.
    """
    wanted = parse_item(QuestionsRequest, _asked(request))
    found = service_of(request).pool.bank.matching(wanted.split, wanted.difficulty, wanted.db_id)
    part, place = _page(found, wanted)
    listed = [
        ListedQuestion(
            question_id=question.question_id,
            question=question.question_text,
            db_id=question.database_name,
            split=split,
            difficulty=question.difficulty,
        )
        for split, question in part
    ]
    return json_reply(to_json(QuestionPage(**place, questions=listed)))


@listing.get(
    "/databases",
    response_model=DatabasePage,
    responses=errors(422, 503),
    openapi_extra=query_of(PageRequest),
)
async def databases(request: Request) -> Response:
    """List the databases that a reset can draw questions about, by id."""
    wanted = parse_item(PageRequest, _asked(request))
    part, place = _page(service_of(request).pool.bank.drawable_counts, wanted)
    listed = [ListedDatabase(db_id=db_id, questions=counts) for db_id, counts in part]
    return json_reply(to_json(DatabasePage(**place, databases=listed)))


def _asked(request: Request) -> dict[str, Any]:
    """Return the fields of a query; one that is given several times has a list."""
    query = request.query_params
    return {name: every if (every := query.getlist(name))[1:] else every[0] for name in query}


def _page(entries: Sequence[T], wanted: PageRequest) -> tuple[Sequence[T], dict[str, Any]]:
    """Return the wanted part of a list, and the fields that say where it is."""
    end = wanted.offset + wanted.limit
    more = end if end < len(entries) else None
    return entries[wanted.offset : end], {"total": len(entries), "next_offset": more}
