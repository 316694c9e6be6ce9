"""The wire of the real application, in process; `test_server_process.py` tests it over a socket."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from env_server.app import create_app
from env_server.settings import Settings
from shared.actions import SQLAction
from shared.dataset import Question, load_questions, questions_path
from shared.errors import DatabaseLoadError
from shared.models import Outcome, ResetResult, ServerMetadata, SQLState, StepResult

pytestmark = pytest.mark.anyio
MAX_BODY_BYTES, MAX_BATCH, CAPACITY = 30_000, 8, 6


@pytest.fixture(scope="module")
async def app(tiny_data: Path) -> AsyncIterator[FastAPI]:
    settings = Settings(
        data_dir=tiny_data,
        sql_workers=1,
        max_body_bytes=MAX_BODY_BYTES,
        max_batch=MAX_BATCH,
        capacity=CAPACITY,
    )
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """An application without episodes."""
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://env"
    ) as client:
        yield client
    pool = app.state.service.pool
    for held in pool.store.owners.values():
        for episode_id in [*held.active, *held.finished]:
            await pool.close(episode_id)


@pytest.fixture
async def episode(http: httpx.AsyncClient, question: Question) -> str:
    reply = await http.post(
        "/reset", json={"episode_id": "ep", "question_id": question.question_id}
    )
    return ResetResult.model_validate_json(reply.content).episode_id


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a reply, which must have the error shape."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    error = body["error"]
    assert isinstance(error["code"], str)
    assert isinstance(error["retryable"], bool)
    assert error["message"]
    return dict(error)


# -- episodes


async def test_an_episode_from_reset_to_close(http: httpx.AsyncClient, question: Question) -> None:
    reply = await http.post("/reset", json={"question_id": question.question_id, "step_budget": 4})
    reset = ResetResult.model_validate_json(reply.content)
    assert (reset.observation.question, reset.observation.budget_remaining) == (
        question.question_text,
        4,
    )

    table = question.tables_involved[0]
    for step, action in enumerate(
        [f"DESCRIBE: {table}", {"action_type": "QUERY", "argument": question.gold_sql}]
    ):
        reply = await http.post(
            "/step", json={"episode_id": reset.episode_id, "action": action, "step": step}
        )
        result = StepResult.model_validate_json(reply.content)
        assert reply.status_code == 200
        assert (result.observation.error, result.done, result.observation.step_count) == (
            None,
            False,
            step + 1,
        )

    gold = question.gold_answer
    answer = "ANSWER: " + (gold if isinstance(gold, str) else json.dumps(gold))
    reply = await http.post("/step", json={"episode_id": reset.episode_id, "action": answer})
    assert StepResult.model_validate_json(reply.content).info.outcome == Outcome.CORRECT

    state = SQLState.model_validate_json(
        (await http.get("/state", params={"episode_id": reset.episode_id})).content
    )
    assert (state.done, state.step_count, state.db_id) == (True, 3, question.database_name)
    assert (await http.delete(f"/episodes/{reset.episode_id}")).status_code == 200
    assert error_of(await http.delete(f"/episodes/{reset.episode_id}"))["code"] == "unknown_episode"


async def test_replies_have_the_documented_shape_and_nothing_else(
    http: httpx.AsyncClient, episode: str
) -> None:
    reply = await http.post("/step", json={"episode_id": episode, "action": "QUERY: SELECT 1"})
    assert list(reply.json()) == ["observation", "reward", "done", "info"]
    assert StepResult.model_validate_json(reply.content).model_dump(mode="json") == reply.json()


async def test_a_repeat_has_the_same_bytes_and_headers(
    http: httpx.AsyncClient, episode: str
) -> None:
    body = {"episode_id": episode, "action": "QUERY: SELECT 1", "step": 0}
    first, second = await http.post("/step", json=body), await http.post("/step", json=body)
    assert (first.content, first.headers) == (second.content, second.headers)


async def test_no_reply_holds_gold_data(
    http: httpx.AsyncClient, episode: str, question: Question
) -> None:
    replies = [
        await http.post(
            "/reset", json={"episode_id": "other", "question_id": question.question_id}
        ),
        await http.post("/step", json={"episode_id": episode, "action": "ANSWER: not the answer"}),
        await http.get("/state", params={"episode_id": episode}),
        await http.get("/metadata"),
    ]
    for reply in replies:
        assert reply.status_code == 200
        assert "gold" not in reply.text
        assert question.gold_sql not in reply.json().get("observation", {}).get("result", "")


async def test_an_empty_body_resets_to_some_question(http: httpx.AsyncClient) -> None:
    assert (await http.post("/reset")).status_code == 200


# -- what is wrong with a request

BAD_ACTIONS = [
    "DROP TABLE x",
    "",
    "QUERY:",
    5,
    None,
    ["QUERY", "SELECT 1"],
    {"action_type": "DROP", "argument": "x"},
    {"action_type": "QUERY"},
    {"action_type": "QUERY", "argument": "   "},
    {"action_type": "QUERY", "argument": "SELECT 1", "more": 1},
    {"action_type": "QUERY", "argument": "x" * 20_001},
]


@pytest.mark.parametrize("action", BAD_ACTIONS, ids=lambda action: repr(action)[:40])
async def test_a_bad_action_says_what_was_expected(
    http: httpx.AsyncClient, app: FastAPI, action: Any
) -> None:
    await http.post("/reset", json={"episode_id": "ep"})
    single = {"episode_id": "ep", "action": action, "step": 0}
    reply = await http.post("/step", json=single)
    error = error_of(reply)
    assert (reply.status_code, error["code"]) == (400, "invalid_action")
    assert "QUERY" in error["message"]
    reply = await http.post("/step_batch", json={"steps": [single]})
    assert reply.json()["results"] == [{"error": error}]
    reply = await http.post(
        "/step", json={"episode_id": "ep", "action": "QUERY: SELECT 1", "step": 0}
    )
    assert (
        reply.json()["observation"]["budget_remaining"]
        == app.state.service.settings.step_budget - 1
    )


@pytest.mark.parametrize("path", ["/reset", "/step", "/reset_batch", "/step_batch"])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"\xff\xfe",
        b'{"episode_id": "\\ud800"}',
        b"[]",
        b"7",
        b"null",
        b"[" * 10_000,
        b'{"no": "such field"}',
    ],
    ids=lambda body: repr(body[:12]),
)
async def test_a_malformed_body_is_422_in_the_one_shape(
    http: httpx.AsyncClient, path: str, body: bytes
) -> None:
    reply = await http.post(path, content=body)
    assert reply.status_code == 422
    assert error_of(reply)["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"episode_id": "two words"}, "episode_id"),
        ({"episode_id": "x" * 65}, "episode_id"),
        ({"episode_id": ".."}, "episode_id"),  # /episodes/.. could not be closed
        ({"step_budget": 0}, "step_budget"),
        ({"step_budget": 10_000}, "step_budget"),
        ({"difficulty": "extreme"}, "difficulty"),
        ({"actions": "QUERY: SELECT 1"}, "actions"),
        ({"actions": ["QUERY: SELECT 1"] * 101}, "actions"),
        ({"seed": "abc"}, "seed"),
    ],
)
async def test_a_bad_field_is_named(
    http: httpx.AsyncClient, fields: dict[str, Any], named: str
) -> None:
    reply = await http.post("/reset", json=fields)
    assert reply.status_code == 422
    assert named in error_of(reply)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("POST", "/step/", 404, "not_found"),
        ("GET", "/step", 405, "method_not_allowed"),
        ("POST", "/state", 405, "method_not_allowed"),
        ("GET", "/state", 422, "invalid_request"),
        ("GET", "/state?episode_id=nobody", 404, "unknown_episode"),
        ("DELETE", "/episodes/nobody", 404, "unknown_episode"),
    ],
)
async def test_other_errors_have_the_same_shape(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    reply = await http.request(method, path)
    assert (reply.status_code, error_of(reply)["code"]) == (status, code)


@pytest.mark.parametrize("field", ["question_id", "db_id", "digest"])
async def test_an_error_does_not_repeat_a_long_text(http: httpx.AsyncClient, field: str) -> None:
    reply = await http.post("/reset", json={field: "x" * 10_000})
    assert reply.status_code in (404, 409)
    assert len(error_of(reply)["message"]) < 500
    reply = await http.get(f"/{'x' * 10_000}")
    assert reply.status_code == 404
    assert len(error_of(reply)["message"]) < 200


async def test_an_unknown_episode_says_to_reset_with_actions(http: httpx.AsyncClient) -> None:
    reply = await http.post("/step", json={"episode_id": "nobody", "action": "QUERY: SELECT 1"})
    assert reply.status_code == 404
    assert "reset" in error_of(reply)["message"]
    assert "actions" in error_of(reply)["message"]


async def test_conflict_behind_and_digest(http: httpx.AsyncClient, episode: str) -> None:
    await http.post("/step", json={"episode_id": episode, "action": "QUERY: SELECT 1", "step": 0})
    for body, code in [
        ({"action": "QUERY: SELECT 2", "step": 0}, "conflict"),
        ({"action": "ANSWER: 1", "step": 3}, "behind"),
    ]:
        reply = await http.post("/step", json={"episode_id": episode} | body)
        assert (reply.status_code, error_of(reply)["code"]) == (409, code)
    reply = await http.post("/reset", json={"digest": "of another server"})
    assert (reply.status_code, error_of(reply)["code"]) == (409, "digest_mismatch")


async def test_an_oversize_body_is_413_with_or_without_a_length(http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 1000

    for content in (b" " * (MAX_BODY_BYTES + 1), chunks()):
        reply = await http.post("/reset", content=content)
        assert reply.status_code == 413
        assert error_of(reply)["max_bytes"] == MAX_BODY_BYTES
    assert (
        await http.post("/reset", content=b"{}" + b" " * (MAX_BODY_BYTES - 2))
    ).status_code == 200


async def test_capacity_is_429_with_retry_after(http: httpx.AsyncClient) -> None:
    for _ in range(CAPACITY):
        assert (await http.post("/reset")).status_code == 200
    reply = await http.post("/reset")
    assert reply.status_code == 429
    error = error_of(reply)
    assert error["retryable"]
    assert int(reply.headers["retry-after"]) == error["retry_after_s"] >= 1


async def test_an_unexpected_exception_is_a_logged_500(
    http: httpx.AsyncClient,
    app: FastAPI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: object, caller: object) -> bytes:
        raise ZeroDivisionError("a secret of the server's")

    monkeypatch.setattr(app.state.service.pool, "reset", broken)
    with caplog.at_level(logging.ERROR):
        single, batch = (
            await http.post("/reset"),
            await http.post("/reset_batch", json={"resets": [{}]}),
        )
    assert single.status_code == 500
    assert error_of(single)["code"] == batch.json()["results"][0]["error"]["code"] == "internal"
    assert "secret" not in single.text + batch.text
    assert caplog.text.count("ZeroDivisionError: a secret") == 2


async def test_broken_data_is_the_servers_fault_and_logged(
    http: httpx.AsyncClient,
    app: FastAPI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: object, caller: object) -> bytes:
        raise DatabaseLoadError("database shop fails")

    monkeypatch.setattr(app.state.service.pool, "step", broken)
    with caplog.at_level(logging.ERROR):
        reply = await http.post("/step", json={"episode_id": "ep", "action": "QUERY: SELECT 1"})
    assert (reply.status_code, error_of(reply)["code"]) == (500, "database_load")
    assert "database shop fails" in caplog.text


# -- batches


async def test_batches_reply_like_single_requests_in_order(
    http: httpx.AsyncClient, question: Question
) -> None:
    resets = [{"episode_id": name, "question_id": question.question_id} for name in "ab"]
    singles = [await http.post("/reset", json=item) for item in resets]
    batch = await http.post("/reset_batch", json={"resets": resets})
    assert batch.content == b'{"results":[%b,%b]}' % tuple(reply.content for reply in singles)

    steps = [
        {"episode_id": name, "action": f"QUERY: {question.gold_sql}", "step": 0} for name in "ab"
    ]
    batch = await http.post("/step_batch", json={"steps": steps})
    singles = [await http.post("/step", json=item) for item in steps]
    assert batch.content == b'{"results":[%b,%b]}' % tuple(reply.content for reply in singles)


async def test_a_bad_item_fails_alone(http: httpx.AsyncClient, episode: str) -> None:
    good = {"episode_id": episode, "action": "QUERY: SELECT 1", "step": 0}
    items = [
        5,
        good,
        {"episode_id": "nobody", "action": "QUERY: SELECT 1"},
        {},
        good | {"action": "hm"},
        good,
    ]
    results = (await http.post("/step_batch", json={"steps": items})).json()["results"]
    codes = [result["error"]["code"] if "error" in result else "ok" for result in results]
    assert codes == [
        "invalid_request",
        "ok",
        "unknown_episode",
        "invalid_request",
        "invalid_action",
        "ok",
    ]
    assert results[1] == results[5]


async def test_steps_of_one_episode_in_one_batch_keep_their_order(
    http: httpx.AsyncClient, episode: str
) -> None:
    steps = [{"episode_id": episode, "action": f"QUERY: SELECT {n}", "step": n} for n in range(5)]
    results = (await http.post("/step_batch", json={"steps": steps})).json()["results"]
    assert [result["observation"]["step_count"] for result in results] == [1, 2, 3, 4, 5]


async def test_a_batch_over_the_limit_is_refused_whole(
    http: httpx.AsyncClient, app: FastAPI
) -> None:
    reply = await http.post("/reset_batch", json={"resets": [{}] * (MAX_BATCH + 1)})
    assert reply.status_code == 413
    assert error_of(reply)["max_batch"] == MAX_BATCH
    assert len(app.state.service.pool) == 0
    assert (await http.post("/reset_batch", json={"resets": []})).json() == {"results": []}


async def test_many_clients_at_once_get_their_own_replies(
    http: httpx.AsyncClient, question: Question
) -> None:
    async def play(name: str) -> list[str]:
        await http.post("/reset", json={"episode_id": name, "question_id": question.question_id})
        replies = [
            await http.post(
                "/step",
                json={
                    "episode_id": name,
                    "action": f"QUERY: SELECT '{name}', {step}",
                    "step": step,
                },
            )
            for step in range(6)
        ]
        return [reply.json()["observation"]["result"] for reply in replies]

    names = [f"n{i}" for i in range(CAPACITY)]
    for name, results in zip(names, await asyncio.gather(*map(play, names)), strict=True):
        assert all(name in result and str(step) in result for step, result in enumerate(results))


# -- the server itself


async def test_health_ready_metadata_schema(
    http: httpx.AsyncClient, app: FastAPI, tiny_data: Path
) -> None:
    assert (await http.get("/health")).json() == {"status": "healthy"}
    assert (await http.get("/ready")).status_code == 200
    metadata = ServerMetadata.model_validate_json((await http.get("/metadata")).content)
    assert metadata.questions["train"] == len(load_questions(questions_path(tiny_data, "train")))
    assert metadata.capacity == CAPACITY
    schemas = (await http.get("/schema")).json()
    assert set(schemas) == {"action", "observation", "state"}
    assert set(schemas["action"]["properties"]) == set(SQLAction.model_fields)


async def test_draining_is_not_ready(http: httpx.AsyncClient, app: FastAPI, episode: str) -> None:
    app.state.service.pool.draining = True
    try:
        for reply in (await http.get("/ready"), await http.post("/reset")):
            assert (reply.status_code, error_of(reply)["code"]) == (503, "not_ready")
            assert reply.headers["retry-after"]
        reply = await http.post("/step", json={"episode_id": episode, "action": "ANSWER: x"})
        assert reply.status_code == 200, "pooled episodes continue"
    finally:
        app.state.service.pool.draining = False


async def test_openapi_describes_every_endpoint(http: httpx.AsyncClient) -> None:
    text = (await http.get("/openapi.json")).text
    document = json.loads(text)
    assert document["info"]["version"]
    for path in ("/reset", "/step", "/reset_batch", "/step_batch"):
        operation = document["paths"][path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]
        assert operation["description"]
        assert set(operation["responses"]) >= {"200", "413", "422", "500"}
    assert {"/state", "/episodes/{episode_id}", "/health", "/ready", "/metadata", "/schema"} <= set(
        document["paths"]
    )
    schemas = document["components"]["schemas"]
    for reference in set(text.split('"#/components/schemas/')[1:]):
        assert reference.split('"')[0] in schemas
    assert "HTTPValidationError" not in text, "FastAPI's own error shape is not sent"
