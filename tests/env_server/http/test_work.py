"""The work of a request: ended with its client, bounded per client and episode, and in time."""

import asyncio
import gc
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from env_server.http.requests import LARGE_BYTES
from env_server.service import MAX_LARGE
from shared.errors import BodyTooLarge, QueueFull, TimedOut, from_wire, is_retryable
from tests.env_server.http.conftest import limit, reset_scope, until_idle

pytestmark = pytest.mark.anyio
QUERY = "QUERY: SELECT 1"


@pytest.fixture
def settings() -> dict[str, Any]:
    limits = {"max_client_items": 4, "max_episode_items": 3, "max_reply_bytes": 8_000}
    return {**limits, "body_timeout_s": 0.2}


@pytest.fixture
async def http(http: httpx.AsyncClient) -> httpx.AsyncClient:
    await http.post("/reset_batch", json={"resets": [{"episode_id": name} for name in "ab"]})
    return http


class Leaver:
    """A client that sends a request and leaves when `left` is set. `sent` is what it still got."""

    def __init__(self, app: FastAPI, path: str, body: Any, port: int = 1) -> None:
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._body: list[bytes] = [content]
        scope = {"type": "http", "method": "POST", "path": path, "headers": [], "root_path": ""}
        scope |= {"query_string": b"", "scheme": "http", "server": ("e", 80)}
        scope |= {"client": ("10.0.0.1", port), "app": app}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if not self.left.is_set():
            self.sent.append(message)

    @property
    def results(self) -> list[Any]:
        return list(json.loads(self.sent[1]["body"])["results"])

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    async def leave(self) -> None:
        self.left.set()
        async with asyncio.timeout(5):
            await self.task


def step(name: str, step: int | None = 0, action: str = QUERY) -> dict[str, Any]:
    return {"episode_id": name, "action": action, "step": step}


@pytest.mark.parametrize("path", ["/step", "/step_batch"])
async def test_the_work_of_a_client_that_leaves_is_cancelled(app, http, gate, path):
    steps = [step("a"), step("a", 1), step("b")]
    client = Leaver(app, path, steps[0] if path == "/step" else {"steps": steps})
    await gate.until(1 if path == "/step" else 2)
    await client.leave()
    await until_idle(app)
    assert client.sent == []
    gate.open.set()
    for name in "ab":
        state = (await http.get("/state", params={"episode_id": name})).json()
        assert state["step_count"] == 0, "the episode is as it was"
        assert (await http.post("/step", json=step(name))).status_code == 200


async def test_the_work_of_a_cancelled_request_is_cancelled(app, http, gate):
    """An application in the client's own process has no connection that could close."""
    request = asyncio.create_task(http.post("/step", json=step("a")))
    await gate.until(1)
    request.cancel()
    await until_idle(app)
    assert app.state.service.pool.in_flight == 0


async def test_the_replay_of_a_client_that_leaves_is_cancelled(app, http, gate):
    actions = [f"QUERY: SELECT {n}" for n in range(10)]
    client = Leaver(app, "/reset", {"episode_id": "c", "actions": actions})
    await gate.until(1)
    await client.leave()
    gate.open.set()
    await until_idle(app)
    assert gate.jobs == 1
    assert (await http.get("/state", params={"episode_id": "c"})).status_code == 404


async def test_a_request_that_waits_behind_one_whose_client_leaves_is_answered(app, http, gate):
    first = Leaver(app, "/step", step("a"))
    await gate.until(1)
    again = asyncio.create_task(http.post("/step", json=step("a")))
    await asyncio.sleep(0.1)
    await first.leave()
    await asyncio.sleep(0.1)
    gate.open.set()
    assert (await again).json()["observation"]["step_count"] == 1
    assert gate.jobs == 2


async def test_a_clients_items_under_way_are_bounded(app, http, gate):
    busy = Leaver(app, "/step_batch", {"steps": [step("a", n) for n in range(3)]})
    await gate.until(1)
    refused = Leaver(app, "/step_batch", {"steps": [step("b", n) for n in range(2)]})
    await refused.task
    fields = json.loads(refused.sent[1]["body"])
    error = from_wire(fields, refused.status)
    assert (refused.status, type(error), is_retryable(error)) == (429, QueueFull, True)
    assert error.details == {"limit": "max_client_items", "retry_after_s": 1}
    assert (b"retry-after", b"1") in refused.sent[0]["headers"]
    other = Leaver(app, "/step_batch", {"steps": [step("b", n) for n in range(2)]}, port=2)
    await gate.until(2)
    gate.open.set()
    await asyncio.gather(busy.task, other.task)
    whole = Leaver(app, "/step_batch", {"steps": [step("b", n) for n in range(6)]})
    await whole.task
    assert (busy.status, other.status, whole.status) == (200, 200, 200)


async def test_replayed_actions_count_as_items(app, http, gate):
    resets = [{"episode_id": name, "actions": [QUERY, QUERY]} for name in "cd"]
    busy = Leaver(app, "/reset_batch", {"resets": resets})
    await gate.until(2)
    refused = Leaver(app, "/step", step("a"))
    await refused.task
    assert (refused.status, b"max_client_items" in refused.sent[1]["body"]) == (429, True)
    gate.open.set()
    await busy.task
    assert [reply["observation"]["step_count"] for reply in busy.results] == [2, 2]
    resets.append({"episode_id": "e", "actions": [QUERY]})
    reply = await http.post("/reset_batch", json={"resets": resets})
    error = from_wire(reply.json(), reply.status_code)
    assert (reply.status_code, type(error)) == (413, BodyTooLarge), "which clients halve"
    assert "5 actions" in error.message
    alone = {"episode_id": "e", "actions": [f"QUERY: SELECT {n}" for n in range(9)]}
    reply = await http.post("/reset_batch", json={"resets": [alone]})
    assert reply.json()["results"][0]["observation"]["step_count"] == 9


async def test_a_clients_large_requests_are_worked_on_one_at_a_time(app, http, gate):
    def batch(name: str) -> bytes:
        item = {"episode_id": name, "action": QUERY}
        return json.dumps({"steps": [item]}).encode() + b" " * LARGE_BYTES

    first, second = (Leaver(app, "/step_batch", batch(name)) for name in "ab")
    await gate.until(1)
    await asyncio.sleep(0.1)
    assert gate.jobs == 1, "the second is not even read"
    assert (await http.get("/health")).status_code == 200
    small = Leaver(app, "/step_batch", {"steps": [step("b")]})
    other = Leaver(app, "/step_batch", batch("b"), port=2)
    await gate.until(2)
    gate.open.set()
    await asyncio.gather(first.task, second.task, small.task, other.task)
    assert {one.status for one in (first, second, small, other)} == {200}
    waiting = [Leaver(app, "/step_batch", batch("a")) for _ in range(MAX_LARGE + 1)]
    await asyncio.gather(*(one.task for one in waiting))
    assert sorted(one.status for one in waiting) == [200] * MAX_LARGE + [429]


async def test_a_large_request_waits_for_others_no_longer_than_a_request_may_take(app, http, gate):
    body = json.dumps({"steps": [step("a")]}).encode() + b" " * LARGE_BYTES
    first = Leaver(app, "/step_batch", body)
    await gate.until(1)
    limit(app, 0.1)
    second = Leaver(app, "/step_batch", body)
    await second.task
    error = from_wire(json.loads(second.sent[1]["body"]), second.status)
    assert (second.status, type(error)) == (503, TimedOut)
    assert "behind your other requests over 64 KiB" in error.message
    gate.open.set()
    await first.task
    assert first.status == 200


async def test_the_requests_that_wait_for_an_episode_are_bounded(app, http, gate):
    waiting = [asyncio.create_task(http.post("/step", json=step("a"))) for _ in range(3)]
    await gate.until(1)
    reply = await http.get("/state", params={"episode_id": "a"})
    error = from_wire(reply.json(), reply.status_code)
    assert (reply.status_code, type(error)) == (429, QueueFull)
    assert error.details["limit"] == "max_episode_items"
    assert (await http.get("/state", params={"episode_id": "b"})).status_code == 200
    gate.open.set()
    assert {(await one).status_code for one in waiting} == {200}


async def test_one_item_is_answered_however_large(app, http):
    service = app.state.service
    service.settings = service.settings.model_copy(update={"max_reply_bytes": 100})
    reply = await http.post("/step_batch", json={"steps": [step("a"), step("a")]})
    assert ["error" in result for result in reply.json()["results"]] == [False, True]


# -- in time


async def test_a_step_that_is_late_is_taken_once(app, http, gate, question):
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


async def test_in_a_batch_the_late_fail_alone(app, http, gate):
    limit(app, 2)  # the others' time too
    body = {"steps": [step("a"), step("b", action="ANSWER: x"), step("nobody")]}
    results = (await http.post("/step_batch", json=body)).json()["results"]
    codes = [result["error"]["code"] if "error" in result else "ok" for result in results]
    assert codes == ["timeout", "ok", "unknown_episode"]
    gate.open.set()
    limit(app, 60)
    again = (await http.post("/step_batch", json=body)).json()["results"]
    assert "error" not in again[0]
    assert again[1:] == results[1:]


async def test_a_body_that_is_slow_to_arrive_is_refused(app):
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


async def test_a_gateways_id_is_adopted_where_the_body_has_none(http):
    minted = {"X-Episode-Id": "5b1f3a52-4d64-4b5f-9f3c-0a6f3c9f1a11"}
    adopted = await http.post("/reset", headers=minted)
    named = await http.post("/reset", headers=minted, json={"episode_id": "mine"})
    assert named.json()["episode_id"] == "mine"
    plain = await http.post("/reset", json={"episode_id": adopted.json()["episode_id"]})
    assert plain.content == adopted.content, "the id picks the question, however it comes"
    bad = await http.post("/reset", headers={"X-Episode-Id": "two words"})
    assert (bad.status_code, bad.json()["error"]["code"]) == (422, "invalid_request")


async def test_a_gateway_lets_the_server_refuse_a_request(http):
    reply = await http.post("/reset", headers={"X-Refusal": "put episode_id first"})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (422, "invalid_request")
    assert error["message"] == "put episode_id first"


async def test_what_fails_after_its_time_is_not_logged_and_a_fault_is_logged(
    app, http, gate, caplog
):
    """asyncio logs a task's exception with its traceback if nobody retrieves it."""
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    limit(app, 0.1)
    assert (await http.post("/step", json=step("a"))).status_code == 503
    assert (
        await http.post("/step", json=step("a", action="QUERY: SELECT 2"))
    ).status_code == 503, "it waits behind the first"
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
