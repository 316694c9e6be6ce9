"""The reward is no oracle: with rewards "end" a policy that reads them learns nothing."""

from collections.abc import Iterator

import pytest

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql.run import SqlRunner
from shared.dataset import Question
from shared.models import Outcome, Rewards, StepResult

pytestmark = pytest.mark.anyio
MOST = 12  # of the guessed answers, which the budget allows


@pytest.fixture
def env(bank: QuestionBank) -> Iterator[SQLEnvironment]:
    with SqlRunner() as runner:
        yield SQLEnvironment(bank, runner)


def small_integers(bank: QuestionBank) -> list[Question]:
    return [
        question
        for split in bank.splits.values()
        for question in split
        if isinstance(question, Question)
        and question.answer_type == "integer"
        and 0 <= question.gold_answer <= MOST
    ]


def guess(k: int, table: str, column: str) -> str:
    """A query that shows `k` and reads a cell, so that no rule about constants stops it."""
    return f'QUERY: SELECT {k} + 0 * count("{column}") FROM "{table}" LIMIT 1'


def attack(env: SQLEnvironment, question: Question, rewards: Rewards) -> list[StepResult]:
    """Guess every number and answer with the one whose reward was the best: no data is read."""
    replies: list[StepResult] = [
        env.reset(question_id=question.question_id, step_budget=MOST + 3, rewards=rewards)
    ]
    table = replies[0].observation.tables[0]
    replies.append(env.step(f"DESCRIBE: {table}"))
    column = replies[-1].observation.result.split("\n")[1].split()[0]
    replies += [env.step(guess(k, table, column)) for k in range(MOST + 1)]
    assert not any(reply.observation.error for reply in replies)
    seen = [reply.observation.reward or 0.0 for reply in replies[2:]]
    replies.append(env.step(f"ANSWER: {max(range(MOST + 1), key=seen.__getitem__)}"))
    return replies


def test_a_policy_that_reads_rewards_solves_with_each_step_and_learns_nothing_at_the_end(
    env: SQLEnvironment,
) -> None:
    questions = small_integers(env.bank)
    assert len(questions) >= 3
    for question in questions:
        assert attack(env, question, "step")[-1].info.outcome == Outcome.CORRECT
        *before, last = attack(env, question, "end")
        shown = {(one.reward, one.observation.reward, one.info.ledger) for one in before}
        assert shown == {(None, None, None)}
        assert last.observation.action_history[-1] == "ANSWER: 0", "no guess looks better"
        assert last.reward == last.observation.reward == last.ledger.total


def test_at_the_end_the_total_is_that_of_an_episode_with_every_reward(env: SQLEnvironment) -> None:
    question = small_integers(env.bank)[0]
    last = attack(env, question, "end")[-1]
    env.reset(question_id=question.question_id, step_budget=MOST + 3)
    again = [env.step(action) for action in last.observation.action_history]
    assert last.ledger == again[-1].ledger
    assert last.reward == pytest.approx(sum(one.reward or 0.0 for one in again))
