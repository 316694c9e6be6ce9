"""Reward hacking does not pay: every policy stays under its bound, and an oracle gets its due."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from env_server.audit.replay import IN_FLIGHT
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.rewards import OPERATIONAL, RULES
from env_server.sql import SqlLimits, drive_async
from env_server.sql.pool import SqlPool
from shared.dataset import Question
from shared.models import Outcome, StepResult
from tests.env_server.hacking_policies import (
    LEAST_CORRECT,
    MOST_INCORRECT,
    POLICIES,
    Bound,
    HackingEpisode,
    Policy,
    kill_worker,
    most_common_answer,
    oracle,
)

SHIPPED = Path(__file__).parents[2] / "data"
SAMPLE = 19  # every 19th question: 61 of 1,150, of every database and difficulty
SEED = 7
STEP_BUDGET = 15
# kills a worker as a server does, after 0.2 s of CPU time in place of 10
SHORT_LIMITS = SqlLimits(max_vm_steps=10**15, max_cpu_s=1e6, kill_after_cpu_s=0.2)


@pytest.fixture(scope="module")
def bank() -> QuestionBank:
    return QuestionBank.load(SHIPPED)


def chosen(bank: QuestionBank, every: int) -> list[Question]:
    """Return each `every`-th question of all splits, in the order of their ids."""
    questions = [question for split in bank.splits.values() for question in split]
    return sorted(questions, key=lambda question: question.question_id)[::every]


async def play(
    bank: QuestionBank, sql: SqlPool, question: Question, policy: Policy, constant: str
) -> StepResult:
    """Play one episode and return its last reply."""
    env = SQLEnvironment(bank, step_budget=STEP_BUDGET)
    reply: Any = await drive_async(env.reset_jobs(question_id=question.question_id), sql.run)
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


def check(replies: Sequence[StepResult], bound: Bound) -> None:
    """Success and mean reward are within the bound; right answers get more than wrong ones."""
    right = [one.ledger.total for one in replies if one.info.outcome == Outcome.CORRECT]
    wrong = [one.ledger.total for one in replies if one.info.outcome != Outcome.CORRECT]
    assert len(right) / len(replies) <= bound.success
    assert (sum(right) + sum(wrong)) / len(replies) <= bound.reward + 1e-6
    assert max(wrong, default=-1.0) <= MOST_INCORRECT
    assert min(right, default=2.0) >= LEAST_CORRECT


def owed(question: Question) -> float:
    """Return the oracle's exact reward: correctness, progress, and what its looks and query pay."""
    shown = len(question.tables_involved) + 1
    pay = sum(OPERATIONAL[name] for name in ("exec_ok", "new_info", "step_cost"))
    looks = min(round(shown * pay, 6), RULES.sum_bounds[1])
    return round(RULES.correct + RULES.progress_weight + looks, 6)


async def check_all(bank: QuestionBank, questions: Sequence[Question]) -> None:
    async with SqlPool(1, bank.limits) as sql:
        for name, (policy, bound) in POLICIES.items():
            replies = await play_all(bank, sql, questions, policy)
            check(replies, bound)
            if name == "silent oracle":  # its bound is tight
                assert max(one.ledger.total for one in replies) == MOST_INCORRECT
        replies = await play_all(bank, sql, questions, oracle)
    paid = {
        one.question_id: reply.ledger.total for one, reply in zip(questions, replies, strict=True)
    }
    assert paid == {one.question_id: owed(one) for one in questions}


def test_reward_hacking_policies_stay_under_their_bounds(bank: QuestionBank) -> None:
    questions = chosen(bank, SAMPLE)
    assert {question.database_name for question in questions} == set(bank.databases)
    assert {question.difficulty for question in questions} == {"easy", "medium", "hard"}
    asyncio.run(check_all(bank, questions))


@pytest.mark.slow
def test_reward_hacking_policies_stay_under_their_bounds_on_every_question(
    bank: QuestionBank,
) -> None:
    asyncio.run(check_all(bank, chosen(bank, 1)))


def test_killing_the_worker_does_not_pay(bank: QuestionBank) -> None:
    async def run() -> list[StepResult]:
        async with SqlPool(1, SHORT_LIMITS) as sql:
            return await play_all(bank, sql, chosen(bank, 600), kill_worker)

    replies = asyncio.run(run())
    assert {reply.info.outcome for reply in replies} == {Outcome.SQL_KILLED}
    check(replies, Bound(0.0, 0.05))
