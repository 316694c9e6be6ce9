"""Fixtures of the server's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from env_server.app import create_app
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql.run import SqlRunner
from shared.dataset import Question, load_questions, questions_path
from tests.env_server.in_process import LocalEnvironment
from tests.env_server.pool_driver import Driver


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def bank(tiny_data: Path) -> QuestionBank:
    return QuestionBank.load(tiny_data)


@pytest.fixture(scope="session")
def question(tiny_data: Path) -> Question:
    """A training question whose gold reads one table."""
    return load_questions(questions_path(tiny_data, "train"))[0]


@pytest.fixture
def runner() -> Iterator[SqlRunner]:
    with SqlRunner() as runner:
        yield runner


@pytest.fixture
def env(bank: QuestionBank, runner: SqlRunner) -> LocalEnvironment:
    return LocalEnvironment(bank, runner, step_budget=15)


@pytest.fixture
async def driver(bank: QuestionBank, question: Question) -> AsyncIterator[Driver]:
    driver = Driver(bank, question, capacity=3, finished_capacity=2, lease_s=60, step_budget=5)
    yield driver
    driver.sql.runner.close()


@pytest.fixture
def settings() -> dict[str, Any]:
    return {}


@pytest.fixture
async def app(tiny_data: Path, settings: dict[str, Any]) -> AsyncIterator[FastAPI]:
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, **settings))
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://env") as client:
        yield client
