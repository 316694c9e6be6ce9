"""An environment whose SQL runs in this process, without workers."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from env_server.episode import Episode, Options
from env_server.questions import QuestionBank
from env_server.sql import Jobs, SqlJob, SqlResult
from shared.actions import SQLAction, as_action, render_action
from shared.models import DEFAULT_STEP_BUDGET, ResetRequest, StepResult

T = TypeVar("T")


class Runner(Protocol):
    def run(self, job: SqlJob) -> SqlResult: ...


class LocalEnvironment:
    """Plays episodes with a `SqlRunner`; `step_budget` is that of a reset without one."""

    episode: Episode

    def __init__(
        self, bank: QuestionBank, runner: Runner, step_budget: int = DEFAULT_STEP_BUDGET
    ) -> None:
        self.bank, self._runner, self._step_budget = bank, runner, step_budget

    def reset(self, actions: Sequence[SQLAction | str] = (), **fields: Any) -> StepResult:
        request = ResetRequest(**{"step_budget": self._step_budget} | fields)
        self.episode = Episode(self.bank, Options.of(request, self.bank))
        drive(self.episode.start_jobs(), self._runner.run)
        for action in actions:
            self.step(action)
        return self.episode.reply()

    def step(self, action: SQLAction | str) -> StepResult:
        taken = as_action(action)
        drive(self.episode.step_jobs(taken, render_action(taken)), self._runner.run)
        return self.episode.reply()


def drive(jobs: Jobs[T], run: Callable[[SqlJob], SqlResult]) -> T:
    """Run a generator of jobs to its end."""
    try:
        job = next(jobs)
        while True:
            job = jobs.send(run(job))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
