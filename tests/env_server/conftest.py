"""Fixtures of the server's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from env_server.questions import QuestionBank
from shared.dataset import Question, load_questions, questions_path
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
async def driver(bank: QuestionBank, question: Question) -> AsyncIterator[Driver]:
    driver = Driver(bank, question, capacity=3, finished_capacity=2, lease_s=60, step_budget=5)
    yield driver
    driver.sql.runner.close()
