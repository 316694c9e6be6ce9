"""GET /questions and GET /databases: all that a reset can draw, in pages, and no answer."""

from typing import Any

import httpx
import pytest

from env_server.questions import QuestionBank
from shared.models import MAX_PAGE

pytestmark = pytest.mark.anyio
FIELDS = ["question_id", "question", "db_id", "split", "difficulty"]


async def pages(http: httpx.AsyncClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """Return the entries of all pages."""
    entries: list[dict[str, Any]] = []
    offset: int | None = 0
    while offset is not None:
        page = (await http.get(path, params=query | {"offset": offset})).json()
        assert list(page) == ["total", "next_offset", path[1:]]
        entries += page[path[1:]]
        offset = page["next_offset"]
    assert len(entries) == page["total"]
    return entries


@pytest.mark.parametrize("limit", [1, 3, 10, MAX_PAGE])
async def test_pages_hold_every_question_once_in_order(
    http: httpx.AsyncClient, bank: QuestionBank, limit: int
) -> None:
    listed = await pages(http, "/questions", limit=limit)
    assert [list(one) for one in listed] == [FIELDS] * 10
    expected = [
        (split, question.question_id, question.question_text, question.database_name)
        for split in ("eval", "train")
        for question in sorted(bank.splits[split], key=lambda one: one.question_id)
    ]
    names = ("split", "question_id", "question", "db_id")
    assert [tuple(one[name] for name in names) for one in listed] == expected
    listed = await pages(http, "/databases", limit=limit)
    assert listed == [
        {"db_id": "shop", "questions": {"eval": 1, "train": 6}},
        {"db_id": "zoo", "questions": {"eval": 3}},
    ]


async def test_filters(http: httpx.AsyncClient) -> None:
    for query, ids in (
        ({"db_id": "zoo"}, "zoo-1 zoo-2 zoo-3"),
        ({"split": "eval", "difficulty": "medium"}, "zoo-2"),
        ({"split": "eval", "difficulty": ["medium", "easy", "easy"]}, "shop-7 zoo-1 zoo-2 zoo-3"),
        ({"split": "train", "db_id": "zoo"}, ""),
        ({"split": "nothing"}, ""),
        ({"db_id": "nothing"}, ""),
    ):
        listed = await pages(http, "/questions", **query)
        assert [one["question_id"] for one in listed] == ids.split()
    for twice in ({"split": ["eval", "train"]}, {"limit": [1, 2]}):
        assert (await http.get("/questions", params=twice)).status_code == 422
    beyond = (await http.get("/questions", params={"offset": 99})).json()
    assert beyond == {"total": 10, "next_offset": None, "questions": []}


async def test_a_reset_draws_from_what_is_listed(http: httpx.AsyncClient) -> None:
    listed = {one["question_id"] for one in await pages(http, "/questions", db_id="zoo")}
    drawn = [
        (await http.post("/reset", json={"db_id": "zoo", "seed": seed})).json()["info"]
        for seed in range(30)
    ]
    assert {info["question_id"] for info in drawn} == listed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit: Input should be greater than or equal to 1 (got '0')"),
        ("limit=501", "limit: Input should be less than or equal to 500"),
        ("offset=-1", "offset: Input should be greater than or equal to 0"),
        ("offset=" + "9" * 5000, "offset: Unable to parse input string as an integer"),
        ("difficulty=hm", "difficulty: Input should be 'easy', 'medium' or 'hard'"),
        ("gold=1", "gold: there is no such field; expected only offset, limit, split, "),
    ],
)
async def test_a_wrong_query_is_named(http: httpx.AsyncClient, query: str, message: str) -> None:
    reply = await http.get(f"/questions?{query}")
    assert reply.status_code == 422
    assert message in reply.json()["error"]["message"]
