"""Reward hacking does not pay: every policy stays under its bound, and an oracle gets its due."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.rewards import OPERATIONAL, RULES
from env_server.sql import SqlJob, SqlResult
from env_server.sql.run import SqlRunner
from shared.dataset import Question
from shared.models import Outcome, StepResult
from tests.env_server.hacking_policies import (
    ENDLESS,
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


@pytest.fixture(scope="module")
def bank() -> QuestionBank:
    return QuestionBank.load(SHIPPED)


def chosen(bank: QuestionBank, every: int) -> list[Question]:
    """Return each `every`-th question of all splits, in the order of their ids."""
    questions = [question for split in bank.splits.values() for question in split]
    return sorted(questions, key=lambda question: question.question_id)[::every]


def play(env: SQLEnvironment, questions: Sequence[Question], policy: Policy) -> list[StepResult]:
    """Play an episode of each question and return their last replies."""
    constant, replies = most_common_answer(env.bank), list[StepResult]()
    for one in questions:
        reply: StepResult = env.reset(question_id=one.question_id)
        rng, seen = np.random.default_rng((SEED, *one.question_id.encode())), [reply.observation]
        episode = HackingEpisode(one.question_id, 0, rng, seen, question=one, constant=constant)
        for action in policy(episode):
            reply = env.step(action)
            episode.actions.append(action)
            episode.observations.append(reply.observation)
            if reply.done:
                break
        replies.append(reply)
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


def check_all(bank: QuestionBank, questions: Sequence[Question]) -> None:
    with SqlRunner(bank.limits) as runner:
        env = SQLEnvironment(bank, runner, step_budget=STEP_BUDGET)
        for name, (policy, bound) in POLICIES.items():
            replies = play(env, questions, policy)
            check(replies, bound)
            if name == "silent oracle":  # its bound is tight
                assert max(one.ledger.total for one in replies) == MOST_INCORRECT
        replies = play(env, questions, oracle)
    assert [one.ledger.total for one in replies] == list(map(owed, questions))


def test_reward_hacking_policies_stay_under_their_bounds(bank: QuestionBank) -> None:
    questions = chosen(bank, SAMPLE)
    assert {question.database_name for question in questions} == set(bank.databases)
    assert {question.difficulty for question in questions} == {"easy", "medium", "hard"}
    check_all(bank, questions)


@pytest.mark.slow
def test_reward_hacking_policies_stay_under_their_bounds_on_every_question(
    bank: QuestionBank,
) -> None:
    check_all(bank, chosen(bank, 1))


class Killed(SqlRunner):
    """Has the result that a server has for a query that killed its workers."""

    def run(self, job: SqlJob) -> SqlResult:
        if job.sql == ENDLESS:
            return SqlResult(error="the query takes too long", error_code="sql_killed")
        return super().run(job)


def test_killing_the_worker_does_not_pay(bank: QuestionBank) -> None:
    with Killed() as runner:
        env = SQLEnvironment(bank, runner, step_budget=STEP_BUDGET)
        replies = play(env, chosen(bank, 600), kill_worker)
    assert {reply.info.outcome for reply in replies} == {Outcome.SQL_KILLED}
    check(replies, Bound(0.0, 0.05))
