"""A request has a time limit. What is not done by then continues, so that a retry is free."""

import asyncio
import gc
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shared.dataset import Question
from shared.errors import TimedOut, from_wire, is_retryable
from tests.env_server.http.conftest import Gate, limit, reset_scope, until_idle

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"body_timeout_s": 0.2}


def step(name: str, action: str = "QUERY: SELECT 1") -> dict[str, Any]:
    return {"episode_id": name, "action": action, "step": 0}


async def test_a_step_that_is_late_is_taken_once(
    app: FastAPI, http: httpx.AsyncClient, gate: Gate, question: Question
) -> None:
    await http.post("/reset", json={"episode_id": "e", "question_id": question.question_id})
    limit(app, 0.1)
    for _ in range(2):
        reply = await http.post("/step", json=step("e"))
        error = from_wire(reply.json(), reply.status_code)
        assert (reply.status_code, type(error), is_retryable(error)) == (503, TimedOut, True)
        assert reply.headers["retry-after"] == "1"
    gate.open.set()
    limit(app, 60)
    reply = await http.post("/step", json=step("e"))
    assert reply.json()["observation"]["step_count"] == 1
    assert gate.jobs == 1, "the repeats waited for the first"


async def test_in_a_batch_the_late_fail_alone(
    app: FastAPI, http: httpx.AsyncClient, gate: Gate
) -> None:
    await http.post("/reset_batch", json={"resets": [{"episode_id": name} for name in "ab"]})
    limit(app, 2)  # the others' time too
    body = {"steps": [step("a"), step("b", "ANSWER: x"), step("nobody")]}
    results = (await http.post("/step_batch", json=body)).json()["results"]
    codes = [result["error"]["code"] if "error" in result else "ok" for result in results]
    assert codes == ["timeout", "ok", "unknown_episode"]
    gate.open.set()
    limit(app, 60)
    again = (await http.post("/step_batch", json=body)).json()["results"]
    assert "error" not in again[0]
    assert again[1:] == results[1:]


async def test_a_body_that_is_slow_to_arrive_is_refused(app: FastAPI) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = reset_scope(app) | {"scheme": "http", "server": ("e", 80), "root_path": ""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 408
    assert b'"code":"request_timeout"' in sent[1]["body"]
    assert (b"connection", b"close") in sent[0]["headers"], (
        "the rest of the body must not be read as a request"
    )


async def test_a_gateways_id_is_adopted_where_the_body_has_none(http: httpx.AsyncClient) -> None:
    minted = {"X-Episode-Id": "5b1f3a52-4d64-4b5f-9f3c-0a6f3c9f1a11"}
    adopted = await http.post("/reset", headers=minted)
    named = await http.post("/reset", headers=minted, json={"episode_id": "mine"})
    assert named.json()["episode_id"] == "mine"
    plain = await http.post("/reset", json={"episode_id": adopted.json()["episode_id"]})
    assert plain.content == adopted.content, "the id picks the question, however it comes"
    bad = await http.post("/reset", headers={"X-Episode-Id": "two words"})
    assert (bad.status_code, bad.json()["error"]["code"]) == (422, "invalid_request")


async def test_a_gateway_lets_the_server_refuse_a_request(http: httpx.AsyncClient) -> None:
    reply = await http.post("/reset", headers={"X-Refusal": "put episode_id first"})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (422, "invalid_request")
    assert error["message"] == "put episode_id first"


async def test_what_fails_after_its_time_is_not_logged_and_a_fault_is_logged(
    app: FastAPI, http: httpx.AsyncClient, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio logs a task's exception with its traceback if nobody retrieves it."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    await http.post("/reset_batch", json={"resets": [{"episode_id": name} for name in "ab"]})
    limit(app, 0.1)
    assert (await http.post("/step", json=step("a"))).status_code == 503
    assert (await http.post("/step", json=step("a", "QUERY: SELECT 2"))).status_code == 503, (
        "it waits behind the first"
    )
    gate.open.set()
    await until_idle(app)
    gate.fault = RuntimeError("a bug")
    gate.open.clear()
    assert (await http.post("/step", json=step("b"))).status_code == 503
    gate.open.set()
    await until_idle(app)
    gc.collect()
    assert unheard == []
    record = next(record for record in caplog.records if record.levelname == "ERROR")
    assert (record.exc_info[1], record.episode_id) == (gate.fault, "b")
