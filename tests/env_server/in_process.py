"""An environment whose SQL runs in this process, without workers."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql import Jobs, SqlJob, SqlResult
from shared.actions import SQLAction
from shared.models import DEFAULT_STEP_BUDGET, ResetRequest, ResetResult, StepResult

T = TypeVar("T")


class Runner(Protocol):
    def run(self, job: SqlJob) -> SqlResult: ...


class LocalEnvironment(SQLEnvironment):
    """Plays episodes with a `SqlRunner`; `step_budget` is that of a reset without one."""

    def __init__(
        self, bank: QuestionBank, runner: Runner, step_budget: int = DEFAULT_STEP_BUDGET
    ) -> None:
        super().__init__(bank)
        self._runner, self._step_budget = runner, step_budget

    def reset(self, **fields: Any) -> ResetResult:
        request = ResetRequest(**{"step_budget": self._step_budget} | fields)
        return drive(self.reset_jobs(request), self._runner.run)

    def step(self, action: SQLAction | str) -> StepResult:
        return drive(self.step_jobs(action), self._runner.run)


def drive(jobs: Jobs[T], run: Callable[[SqlJob], SqlResult]) -> T:
    """Run a generator of jobs to its end."""
    try:
        job = next(jobs)
        while True:
            job = jobs.send(run(job))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
