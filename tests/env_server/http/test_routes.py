"""The wire of the real application, in process, beyond what the conformance suite checks."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from shared.errors import DatabaseLoadError

pytestmark = pytest.mark.anyio
MAX_BODY_BYTES, MAX_BATCH = 30_000, 8
QUERY = "QUERY: SELECT 1"


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"max_body_bytes": MAX_BODY_BYTES, "max_batch": MAX_BATCH}


def error_of(reply: httpx.Response) -> dict[str, Any]:
    assert reply.headers["content-type"] == "application/json"
    return dict(reply.json()["error"])


async def test_an_oversize_body_is_413_with_or_without_a_length(http: httpx.AsyncClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 1000

    for content in (b" " * (MAX_BODY_BYTES + 1), chunks()):
        reply = await http.post("/reset", content=content)
        assert reply.status_code == 413
        assert error_of(reply)["max_bytes"] == MAX_BODY_BYTES
    reply = await http.post("/reset", content=b"{}" + b" " * (MAX_BODY_BYTES - 2))
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("fault", "code", "seen"),
    [
        (ZeroDivisionError("a secret of the server's"), "internal", "see its log"),
        (DatabaseLoadError("database shop fails"), "database_load", "shop fails"),
    ],
)
async def test_a_fault_of_the_server_is_a_logged_500(
    app: FastAPI, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, fault: Exception, code: str, seen: str,
) -> None:  # fmt: skip
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


async def test_a_batch_over_the_limit_is_refused_whole(
    http: httpx.AsyncClient, app: FastAPI
) -> None:
    reply = await http.post("/reset_batch", json={"resets": [{}] * (MAX_BATCH + 1)})
    assert (reply.status_code, error_of(reply)["max_batch"]) == (413, MAX_BATCH)
    assert len(app.state.service.pool) == 0
    assert (await http.post("/reset_batch", json={"resets": []})).json() == {"results": []}
