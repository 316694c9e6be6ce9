"""What tests of the HTTP layer share."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from env_server.app import create_app
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import SqlJob, SqlResult
from env_server.sql.pool import SqlPool
from tests.conftest import until

TRAINER, AGENT = "trainer-key-0123456789", "agent-key-0123456789"
OPERATOR = "operator-key-0123456789"


@asynccontextmanager
async def serving(
    data_dir: Path, bank: QuestionBank | None = None, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(data_dir=data_dir, sql_workers=1, **settings), bank)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://env") as http,
    ):
        yield http


def bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


class Gate:
    """Blocks the SQL that agents write, and fails it with `fault`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.jobs = 0
        self.fault: Exception | None = None
        run = SqlPool.run

        async def gated(pool: SqlPool, job: SqlJob) -> SqlResult:
            if job.kind == "query":
                self.jobs += 1
                await self.open.wait()
                if self.fault is not None:
                    raise self.fault
            return await run(pool, job)

        monkeypatch.setattr(SqlPool, "run", gated)

    async def until(self, jobs: int) -> None:
        await until(lambda: self.jobs >= jobs)


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def reset_scope(app: FastAPI) -> dict[str, Any]:
    """Return the ASGI scope of a `POST /reset`, for tests that send its body themselves."""
    request = {"type": "http", "method": "POST", "path": "/reset"}
    return {**request, "headers": [], "query_string": b"", "app": app}


def limit(app: FastAPI, request_timeout_s: float) -> None:
    """Set it from now on; earlier requests have the default, however busy the machine is."""
    service = app.state.service
    service.settings = service.settings.model_copy(update={"request_timeout_s": request_timeout_s})


async def until_idle(app: FastAPI) -> None:
    await until(lambda: not app.state.service._tasks)
