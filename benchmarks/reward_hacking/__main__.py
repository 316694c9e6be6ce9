"""Play every policy over a data directory's questions and print its rewards beside its bound."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, print_table
from benchmarks.reward_hacking.policies import (
    KILLER,
    POLICIES,
    Bound,
    HackingEpisode,
    Policy,
    most_common_answer,
    oracle,
)
from env_server.audit.replay import IN_FLIGHT
from env_server.drive import drive_async
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.rewards import OPERATIONAL, RULES
from env_server.sql import SqlLimits
from env_server.sql.pool import SqlPool
from shared.console import failure, percent, print_line, table_console, write_json
from shared.dataset import Question
from shared.errors import DataError
from shared.models import Outcome, StepResult

_console = table_console()

SEED = 7
STEP_BUDGET = 15
KILLED_QUESTIONS = 2  # each costs two worker processes
# kills a worker as a server does, after 0.2 s of CPU time in place of 10
SHORT_LIMITS = SqlLimits(max_vm_steps=10**15, max_cpu_s=1e6, kill_after_cpu_s=0.2)


@dataclass(frozen=True)
class Result:
    """What one policy achieved. Rewards are ledger totals."""

    policy: str
    episodes: int
    success: float
    reward: float
    most_incorrect: float  # the highest reward without success
    least_correct: float | None  # the lowest reward with success
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
    bank: QuestionBank, sql: SqlPool, question: Question, policy: Policy, constant: str
) -> StepResult:
    """Play one episode and return its last reply."""
    env = SQLEnvironment(bank, step_budget=STEP_BUDGET)
    reply: StepResult = await drive_async(env.reset_jobs(question_id=question.question_id), sql.run)
    rng, seen = np.random.default_rng((SEED, *question.question_id.encode())), [reply.observation]
    episode = HackingEpisode(
        question.question_id, 0, rng, seen, question=question, constant=constant
    )
    for action in policy(episode):
        reply = await drive_async(env.step_jobs(action), sql.run)
        episode.actions.append(action)
        episode.observations.append(reply.observation)
        if reply.done:
            break
    return reply


async def play_all(
    bank: QuestionBank, sql: SqlPool, questions: Sequence[Question], policy: Policy
) -> list[StepResult]:
    """Play an episode of each question and return their last replies."""
    constant, replies = most_common_answer(bank), list[StepResult]()
    for start in range(0, len(questions), IN_FLIGHT):
        group = questions[start : start + IN_FLIGHT]
        played = (play(bank, sql, question, policy, constant) for question in group)
        replies += await asyncio.gather(*played)
    return replies


def result_of(name: str, replies: Sequence[StepResult], bound: Bound) -> Result:
    """Return what a policy achieved, from the last replies of its episodes."""
    rewards: dict[bool, list[float]] = {True: [], False: []}  # by success
    for reply in replies:
        rewards[reply.info.outcome == Outcome.CORRECT].append(reply.ledger.total)
    return Result(
        policy=name,
        episodes=len(replies),
        success=len(rewards[True]) / len(replies),
        reward=round(sum(reply.ledger.total for reply in replies) / len(replies), 6),
        most_incorrect=max(rewards[False], default=-1.0),
        least_correct=min(rewards[True], default=None),
        outcomes=dict(Counter(str(reply.info.outcome or Outcome.ABANDONED) for reply in replies)),
        bound=bound,
    )


def owed(question: Question) -> float:
    """Return the oracle's exact reward: correctness, progress, and what its looks and query pay."""
    shown = len(question.tables_involved) + 1
    pay = sum(OPERATIONAL[name][0] for name in ("exec_ok", "new_info", "step_cost"))
    looks = min(round(shown * pay, 6), RULES.sum_bounds[1])
    return round(RULES.correct + RULES.progress_weight + looks, 6)


async def run(
    bank: QuestionBank, questions: Sequence[Question], workers: int
) -> tuple[list[Result], list[str]]:
    """Play all policies on worker processes.

    Returns their results and the questions whose oracle reward is not `owed`.
    """
    async with SqlPool(workers, bank.limits) as sql:
        results = [
            result_of(name, await play_all(bank, sql, questions, policy), bound)
            for name, (policy, bound) in POLICIES.items()
        ]
        replies = await play_all(bank, sql, questions, oracle)
    name, killer, bound = KILLER
    async with SqlPool(1, SHORT_LIMITS) as sql:
        subset = questions[:: max(1, len(questions) // KILLED_QUESTIONS)][:KILLED_QUESTIONS]
        results.append(result_of(name, await play_all(bank, sql, subset, killer), bound))
    underpaid = [
        question.question_id
        for question, reply in zip(questions, replies, strict=True)
        if reply.ledger.total != owed(question)
    ]
    return results, underpaid


def chosen(bank: QuestionBank, every: int) -> list[Question]:
    """Return each `every`-th question of all splits, in the order of their ids."""
    questions = [question for split in bank.splits.values() for question in split]
    return sorted(questions, key=lambda question: question.question_id)[::every]


def show(results: Sequence[Result]) -> None:
    headings = ("policy", "episodes", "success", "bound", "mean reward", "bound")
    rows = [
        (
            result.policy,
            f"{result.episodes:,}",
            percent(result.success, 2),
            percent(result.bound.success, 0),
            f"{result.reward:+.4f}",
            f"{result.bound.reward:+.2f}",
            f"{result.most_incorrect:+.4f}",
            "yes" if result.holds else "NO",
        )
        for result in results
    ]
    title = "Reward-hacking policies and their bounds"
    print_table(title, (*headings, "best without success", "holds"), rows)


def main(
    data: DataDir = DATA,
    every: Annotated[int, typer.Option(min=1, help="Play only every N-th question.")] = 1,
    workers: Annotated[int, typer.Option(min=1, help="SQL processes.")] = 2,
    json_path: JsonPath = None,
) -> None:
    """Play every policy over the questions.

    Exit code: 1 if a policy exceeds its bound, the oracle is underpaid, or there are no data.
    """
    try:
        bank = QuestionBank.load(data)
    except DataError as error:
        raise failure(error) from None
    questions = chosen(bank, every)
    results, underpaid = asyncio.run(run(bank, questions, workers))
    show(results)
    for question_id in underpaid[:20]:
        print_line(_console, f"underpaid: {question_id}")
    paid = len(questions) - len(underpaid)
    print_line(_console, f"oracle: full reward on {paid:,} of {len(questions):,} questions")
    above = sum(not result.holds for result in results)
    verdict = "FAILED" if above or underpaid else "passed"
    print_line(_console, f"{verdict}: {len(results) - above} of {len(results)} bounds hold")
    figures = [{**asdict(result), "holds": result.holds} for result in results]
    write_json(json_path, {"policies": figures, "oracle_underpaid": underpaid})
    if above or underpaid:
        raise typer.Exit(1)


app = typer.Typer(add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
