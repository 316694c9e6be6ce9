"""Plays every policy over a data directory's questions and prints what it got beside its bound."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.reward_hacking.policies import (
    KILLER,
    POLICIES,
    Bound,
    Play,
    Scene,
    most_common_answer,
    oracle,
)
from env_server.audit.replay import IN_FLIGHT, Sql
from env_server.drive import drive_async
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.rewards import OPERATIONAL, RULES
from env_server.sql import SqlLimits, SqlPool
from shared.dataset import Question
from shared.errors import DataError
from shared.models import Outcome, StepResult

SEED = 7
STEP_BUDGET = 15
KILLED_QUESTIONS = 2  # each costs two worker processes
# The same nets as a server's, sooner: a worker that is killed after 10 s of CPU time is killed all
# the same.
SHORT_NETS = SqlLimits(max_vm_steps=10**15, max_cpu_s=1e6, kill_after_cpu_s=0.2)


@dataclass(frozen=True)
class Result:
    """What one policy got. Rewards are ledger totals; `most_incorrect` is the best of its episodes
    without success."""

    policy: str
    episodes: int
    success: float
    reward: float
    most_incorrect: float
    least_correct: float | None
    outcomes: Mapping[str, int]
    bound: Bound

    @property
    def holds(self) -> bool:
        within = self.success <= self.bound.success and self.reward <= self.bound.reward
        separated = self.most_incorrect <= RULES.most_incorrect and (
            self.least_correct is None or self.least_correct >= RULES.least_correct
        )
        return within and separated


async def play(
    bank: QuestionBank, sql: Sql, question: Question, policy: Callable[[Scene], Play], constant: str
) -> StepResult:
    """The last reply of one episode."""
    env = SQLEnvironment(bank, step_budget=STEP_BUDGET)
    reply: StepResult = await drive_async(env.reset_jobs(question_id=question.question_id), sql.run)
    rng = np.random.default_rng((SEED, *question.question_id.encode()))
    actions = policy(Scene(reply.observation, rng, question, constant))
    try:
        action = next(actions)
        while not reply.done:
            reply = await drive_async(env.step_jobs(action), sql.run)
            action = actions.send(reply.observation)
    except StopIteration:
        pass
    return reply


async def play_all(
    bank: QuestionBank, sql: Sql, questions: Sequence[Question], policy: Callable[[Scene], Play]
) -> list[StepResult]:
    """The last reply of an episode of each question."""
    constant, replies = most_common_answer(bank), list[StepResult]()
    for start in range(0, len(questions), IN_FLIGHT):
        group = questions[start : start + IN_FLIGHT]
        replies += await asyncio.gather(
            *(play(bank, sql, question, policy, constant) for question in group)
        )
    return replies


def result_of(name: str, replies: Sequence[StepResult], bound: Bound) -> Result:
    totals = [reply.info.ledger.total for reply in replies]
    right = [reply.info.outcome == Outcome.CORRECT for reply in replies]
    return Result(
        name,
        len(replies),
        sum(right) / len(right),
        round(sum(totals) / len(totals), 6),
        max((total for total, so in zip(totals, right, strict=True) if not so), default=-1.0),
        min((total for total, so in zip(totals, right, strict=True) if so), default=None),
        dict(Counter(str(reply.info.outcome or Outcome.ABANDONED) for reply in replies)),
        bound,
    )


async def measure(
    bank: QuestionBank, questions: Sequence[Question], workers: int = 2
) -> AsyncIterator[Result]:
    """What each policy got, on real worker processes."""
    async with SqlPool(workers, bank.limits) as sql:
        for name, (policy, bound) in POLICIES.items():
            yield result_of(name, await play_all(bank, sql, questions, policy), bound)
    name, policy, bound = KILLER
    async with SqlPool(1, SHORT_NETS) as sql:
        few = questions[:: max(1, len(questions) // KILLED_QUESTIONS)][:KILLED_QUESTIONS]
        yield result_of(name, await play_all(bank, sql, few, policy), bound)


def owed(question: Question) -> float:
    """What the oracle should get: all of correctness and progress, and what its looks and its query
    pay."""
    shown = len(question.tables_involved) + 1
    looks = round(
        shown
        * (OPERATIONAL["exec_ok"][0] + OPERATIONAL["new_info"][0] + OPERATIONAL["step_cost"][0]),
        6,
    )
    return round(RULES.correct + RULES.progress_weight + min(looks, RULES.sum_bounds[1]), 6)


async def underpaid(
    bank: QuestionBank, questions: Sequence[Question], workers: int = 2
) -> list[str]:
    """The questions of which the oracle gets other than it should."""
    async with SqlPool(workers, bank.limits) as sql:
        replies = await play_all(bank, sql, questions, oracle)
    return [
        question.question_id
        for question, reply in zip(questions, replies, strict=True)
        if reply.info.ledger.total != owed(question)
    ]


def chosen(bank: QuestionBank, every: int) -> list[Question]:
    """Each `every`-th question of all splits, in the order of their ids."""
    questions = [question for split in bank.splits.values() for question in split]
    return sorted(questions, key=lambda question: question.question_id)[::every]


async def run(
    bank: QuestionBank, questions: Sequence[Question], workers: int
) -> tuple[list[Result], list[str]]:
    return [one async for one in measure(bank, questions, workers)], await underpaid(
        bank, questions, workers
    )


def show(results: Sequence[Result], console: Console) -> None:
    table = Table(title="What farming gets, and its bound", title_justify="left")
    for heading in (
        "policy",
        "episodes",
        "success",
        "bound",
        "mean reward",
        "bound",
        "best without success",
        "holds",
    ):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for one in results:
        table.add_row(
            one.policy,
            f"{one.episodes:,}",
            f"{one.success:.2%}",
            f"{one.bound.success:.0%}",
            f"{one.reward:+.4f}",
            f"{one.bound.reward:+.2f}",
            f"{one.most_incorrect:+.4f}",
            "yes" if one.holds else "NO",
        )
    console.print(table)


def main(
    data: Annotated[Path, typer.Option(help="Data directory.")] = Path("data"),
    every: Annotated[int, typer.Option(min=1, help="Play each so-many-th question.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes for SQL.")] = 2,
    out: Annotated[Path | None, typer.Option(help="Write the figures there as JSON.")] = None,
) -> None:
    """Play every policy over the questions; exit with 1 where one is above its bound or the oracle
    is underpaid."""
    console = Console(width=120)
    try:
        bank = QuestionBank.load(data)
    except DataError as error:
        raise _failure(str(error)) from None
    questions = chosen(bank, every)
    results, short = asyncio.run(run(bank, questions, workers))
    show(results, console)
    console.print(
        f"oracle: all it should get of {len(questions) - len(short):,} of {len(questions):,} questions"
    )
    for question_id in short[:20]:
        console.print(f"underpaid: {question_id}", markup=False)
    if out is not None:
        figures = [{**asdict(one), "holds": one.holds} for one in results]
        try:
            out.write_text(
                json.dumps({"policies": figures, "oracle_underpaid": short}, indent=1) + "\n"
            )
        except OSError as error:
            raise _failure(f"can't write {out}: {error.strerror}") from None
    if short or not all(one.holds for one in results):
        raise typer.Exit(1)


def _failure(message: str) -> typer.Exit:
    typer.echo(f"error: {message}", err=True)
    return typer.Exit(1)


app = typer.Typer(add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
