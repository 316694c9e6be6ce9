"""An `EpisodePool` in this process whose SQL and clock the test controls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from env_server.episode_pool import EpisodePool
from env_server.questions import QuestionBank
from env_server.settings import Settings
from env_server.sql import SqlJob, SqlResult
from env_server.sql.run import SqlRunner
from shared.dataset import Question
from shared.models import ResetRequest, ResetResult, SQLState, StepRequest, StepResult


class LocalSql:
    """Stands in for `SqlPool` with a runner in this process.

    Jobs wait while `open` is cleared, and fail if `fault` is set.
    """

    def __init__(self) -> None:
        self.runner = SqlRunner()
        self.open = asyncio.Event()
        self.open.set()
        self.fault: Exception | None = None
        self.jobs = 0

    async def run(self, job: SqlJob) -> SqlResult:
        self.jobs += 1
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return self.runner.run(job)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """A pool with shorthands: requests as keywords, episodes by name."""

    def __init__(self, bank: QuestionBank, question: Question, **settings: Any) -> None:
        self.sql, self.clock, self.question = LocalSql(), Clock(), question
        self.pool = EpisodePool(bank, self.sql, Settings(**settings), "digest", self.clock)  # type: ignore[arg-type]
        self.describe = f"DESCRIBE: {question.tables_involved[0]}"
        self.sample = f"SAMPLE: {question.tables_involved[0]}"
        self.query = f"QUERY: {question.gold_sql}"

    async def reset(self, episode_id: str | None = "e", **fields: Any) -> ResetResult:
        fields.setdefault("question_id", self.question.question_id)
        return await self.pool.reset(ResetRequest(episode_id=episode_id, **fields))

    async def step(self, action: Any, step: int | None = None, episode_id: str = "e") -> StepResult:
        return await self.pool.step(StepRequest(episode_id=episode_id, action=action, step=step))

    @asynccontextmanager
    async def in_flight(self, action: Any, step: int) -> AsyncIterator[asyncio.Task[StepResult]]:
        """Yield a step whose SQL waits for the end of the block."""
        self.sql.open.clear()
        task = asyncio.create_task(self.step(action, step))
        await asyncio.sleep(0.01)
        yield task
        await asyncio.sleep(0.01)
        self.sql.open.set()

    async def state(self, episode_id: str = "e") -> SQLState:
        return await self.pool.state(episode_id)
