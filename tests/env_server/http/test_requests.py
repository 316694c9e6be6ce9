"""Requests and their errors, lists of questions and databases, faults, readiness."""

import asyncio
import gzip
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from env_server.app import create_app
from env_server.http.requests import MAX_BRACKETS, MAX_STEP_BYTES, parse, parse_item
from env_server.settings import Settings
from shared.actions import MAX_ARGUMENT_BYTES
from shared.errors import DatabaseLoadError, InvalidRequest, SQLEnvError
from shared.models import MAX_PAGE, ResetRequest, StepBatchRequest, StepRequest
from tests.env_server.sql.conftest import pids

pytestmark = pytest.mark.anyio
SOME_ACTION = "'TYPE: argument' with TYPE one of DESCRIBE, SAMPLE, QUERY, ANSWER, or an object of"


@pytest.mark.parametrize(
    ("model", "value", "message"),
    [
        (ResetRequest, {"step_budget": 10**50},
         "step_budget: Input should be less than or equal to 100 (got a number of 19 or more "
         "digits)"),
        (ResetRequest, {"difficulty": ["easy", "hm"], "question_id": 7},
         "question_id: Input should be a valid string (got 7); "
         "difficulty.1: Input should be 'easy', 'medium' or 'hard' (got 'hm')"),
        (StepRequest, {"episode_id.\n": 1, "action": "ANSWER: 1"},
         "episode_id: Field required; episode_id.\\n: there is no such field; "
         "expected only episode_id, action, step"),
        (StepBatchRequest, [], "body: a list of 0 is wrong; expected an object"),
        (StepRequest, {"episode_id": "e", "action": {"action_type": "DROP", "argument": "x"}},
         "action is not an action (action_type: Input should be 'DESCRIBE', 'SAMPLE', 'QUERY' or "
         f"'ANSWER' (got 'DROP')); expected {SOME_ACTION} action_type and argument"),
        (ResetRequest, {"actions": [{"action_type": "QUERY", "argument": "é" * 15_000}]},
         f"actions.0 is not an action (argument: over 20,000 bytes (got '{'é' * 40}'...)); "
         f"expected {SOME_ACTION} action_type and argument"),
    ],
)  # fmt: skip
def test_an_error_says_which_field_what_is_wrong_and_what_is_expected(model, value, message):
    with pytest.raises(SQLEnvError) as raised:
        parse_item(model, value)
    assert raised.value.message == message


def test_brackets_are_counted_before_the_body_is_parsed():
    body = b'{"steps":[' + b",".join([b"[]"] * MAX_BRACKETS) + b"]}"
    with pytest.raises(InvalidRequest, match="over 100,000 objects and arrays"):
        parse(StepBatchRequest, body)
    fits = json.dumps({"steps": [{"action": "QUERY: SELECT '[{'"}] * 1000}).encode()
    assert len(parse(StepBatchRequest, fits).steps) == 1000


async def test_a_step_has_a_limit_of_its_own(http):
    assert (await http.post("/reset", json={"episode_id": "e"})).status_code == 200
    body = '{"episode_id":"e","action":"ANSWER: ' + r"\u0041" * MAX_ARGUMENT_BYTES + '"}'
    assert len(body) < MAX_STEP_BYTES
    assert (await http.post("/step", content=body)).status_code == 200
    reply = await http.post("/step", content=body + " " * MAX_STEP_BYTES)
    assert (reply.status_code, reply.json()["error"]["max_bytes"]) == (413, MAX_STEP_BYTES)
    reply = await http.post("/reset", content=b"{}" + b" " * MAX_STEP_BYTES)
    assert reply.status_code == 200
    for path in ("/reset", "/mcp"):
        reply = await http.post(path, content=b"{}" + b" " * 1024 * 1024)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


FIELDS = ["question_id", "question", "db_id", "split", "difficulty"]


async def pages(http: httpx.AsyncClient, path: str, **query: Any) -> list[dict[str, Any]]:
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
async def test_pages_hold_every_question_once_in_order(http, bank, limit):
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


async def test_filters(http):
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


async def test_a_reset_draws_from_what_is_listed(http):
    listed = {one["question_id"] for one in await pages(http, "/questions", db_id="zoo")}
    drawn = [
        (await http.post("/reset", json={"db_id": "zoo", "seed": seed})).json()["info"]
        for seed in range(30)
    ]
    assert {info["question_id"] for info in drawn} == listed


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=501", "limit: Input should be less than or equal to 500"),
        ("offset=" + "9" * 5000, "offset: Unable to parse input string as an integer"),
        ("gold=1", "gold: there is no such field; expected only offset, limit, split, "),
    ],
)
async def test_a_wrong_query_is_named(http, query, message):
    reply = await http.get(f"/questions?{query}")
    assert reply.status_code == 422
    assert message in reply.json()["error"]["message"]


async def test_it_is_healthy_always_and_ready_only_while_it_runs(tiny_data):
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://env") as http:

        async def statuses() -> list[int]:
            found = []
            for path in ("/health", "/ready"):
                reply, head = await http.get(path), await http.head(path)
                assert (head.status_code, head.headers) == (reply.status_code, reply.headers)
                found.append(reply.status_code)
            return found

        assert await statuses() == [200, 503]
        reply = await http.post("/reset")
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_ready")
        async with app.router.lifespan_context(app):
            assert await statuses() == [200, 200]
            workers = pids(app.state.service.sql)
        assert await statuses() == [200, 503]
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()], "its SQL workers are gone"


async def test_ready_says_which_workers_cannot_start(tiny_data, monkeypatch):
    """With one of two it is ready, and a preempted query runs; with none it is not."""
    app = create_app(Settings(data_dir=tiny_data, sql_workers=2))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000000)"
    query = f"QUERY: {numbers} SELECT max(i) FROM n"
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://env") as http,
    ):
        monkeypatch.setattr(sys, "executable", "/bin/false")
        first, second = pids(app.state.service.sql)
        os.kill(second, signal.SIGKILL)
        while "problem" not in (ready := (await http.get("/ready")).json()):
            await asyncio.sleep(0.01)
        problem = "SQL workers can't start: it exited with status 1"
        assert ready == {"status": "ready", "problem": f"1 of 2 {problem}"}
        resets = [{"seed": 1, "actions": [action]} for action in [query, *["QUERY: SELECT 1"] * 9]]
        results = (await http.post("/reset_batch", json={"resets": resets})).json()["results"]
        assert app.state.service.sql.counts["preempted"]
        assert ["2000000" in one["observation"]["result"] for one in results] == [
            True,
            *[False] * 9,
        ]
        os.kill(first, signal.SIGKILL)
        while (
            reply := await http.get("/ready")
        ).status_code == 200 or " 2 of 2 " not in reply.text:
            await asyncio.sleep(0.01)
        error = f"no SQL worker is up: 2 of 2 {problem}; see its log"
        assert reply.json()["error"]["message"] == error


# -- limits on bodies and batches, faults

MAX_BODY_BYTES, MAX_BATCH = 30_000, 8


limited = pytest.mark.parametrize(
    "settings", [{"max_body_bytes": MAX_BODY_BYTES, "max_batch": MAX_BATCH}]
)


def error_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.headers["content-type"] == "application/json"
    return dict(reply.json()["error"])


@limited
async def test_an_oversize_body_is_413_with_or_without_a_length(http):
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(40):
            read += 1000
            yield b" " * 1000

    for content in (b" " * (MAX_BODY_BYTES + 1), chunks()):
        reply = await http.post("/reset", content=content)
        assert reply.status_code == 413
        assert error_of(reply)["max_bytes"] == MAX_BODY_BYTES
    assert read == MAX_BODY_BYTES + 1000, "no more is waited for"
    reply = await http.post("/reset", content=b"{}" + b" " * (MAX_BODY_BYTES - 2))
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ({"Content-Encoding": "gzip"}, "the body has the Content-Encoding gzip: send it plain"),
        ({}, "the body is compressed by gzip: send it plain"),
    ],
)
async def test_a_compressed_body_is_named(http, headers, seen):
    for path in ("/reset", "/step", "/step_batch"):
        reply = await http.post(path, content=gzip.compress(b"{}"), headers=headers)
        assert (reply.status_code, error_of(reply)["message"]) == (422, seen)


@pytest.mark.parametrize(
    ("fault", "code", "seen"),
    [
        (ZeroDivisionError("a secret of the server's"), "internal", "see its log"),
        (DatabaseLoadError("database shop fails"), "database_load", "shop fails"),
    ],
)
async def test_a_fault_of_the_server_is_a_logged_500(
    app, http, monkeypatch, caplog, fault, code, seen
):
    async def broken(*given: object) -> bytes:
        raise fault

    monkeypatch.setattr(app.state.service.pool, "reset", broken)
    single = await http.post("/reset")
    batch = (await http.post("/reset_batch", json={"resets": [{}]})).json()["results"]
    assert single.status_code == 500
    for error in (error_of(single), batch[0]["error"]):
        assert error["code"] == code
        assert seen in error["message"]
        assert "secret" not in error["message"]
    assert caplog.text.count(str(fault)) == 2


@limited
async def test_a_batch_over_the_limit_is_refused_whole(http, app):
    reply = await http.post("/reset_batch", json={"resets": [{}] * (MAX_BATCH + 1)})
    assert (reply.status_code, error_of(reply)["max_batch"]) == (413, MAX_BATCH)
    assert len(app.state.service.pool) == 0
    assert (await http.post("/reset_batch", json={"resets": []})).json() == {"results": []}
