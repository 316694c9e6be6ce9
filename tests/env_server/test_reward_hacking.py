"""Reward hacking does not pay: every policy stays under its bound, and an oracle gets its due.

A policy returns the actions of an episode, one after another; the episode shows what the agent has
seen by then. It ends with the episode, or earlier and then without an answer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle, repeat
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from env_server.questions import QuestionBank
from env_server.rewards import OPERATIONAL, RULES, potential
from env_server.sql import SqlJob, SqlResult
from env_server.sql.run import SqlRunner
from shared.dataset import Question
from shared.models import Outcome, StepResult
from tests.env_server.in_process import LocalEnvironment
from trainer.rollout.episode import Episode
from trainer.rollout.generators.policies import RandomPolicy, read_cells, read_schema
from trainer.rollout.row import RolloutRow

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MAX_ANSWER_CHARS = 19_900  # a longer one is not a valid action
MOST_INCORRECT, LEAST_CORRECT = 0.2, 0.75  # the most a wrong episode pays, the least a right one
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


@dataclass(kw_only=True)
class HackingEpisode(Episode):
    """What a policy sees. Only oracles may read the gold of `question`."""

    question: Question
    constant: str  # the most common gold answer of all questions

    @property
    def tables(self) -> list[str]:
        return read_schema(self.observations[0].schema_info)[0]

    @property
    def numbers(self) -> list[str]:
        return NUMBER.findall(self.observations[0].question) or ["1"]

    @property
    def all_rows(self) -> str:
        return f'QUERY: SELECT * FROM "{self.tables[0]}"'


Policy = Callable[[HackingEpisode], Iterable[str]]


@dataclass(frozen=True)
class Bound:
    """A policy's upper bounds: the share of right answers, and the mean reward per episode."""

    success: float
    reward: float


def random_actions(episode: HackingEpisode) -> Iterator[str]:
    """Take random valid actions over what is visible; answer with a random cell."""
    policy = RandomPolicy()
    while True:
        (action,) = policy.act([episode])
        assert action is not None
        yield action


def random_number(episode: HackingEpisode) -> Iterable[str]:
    return [f"ANSWER: {episode.numbers[int(episode.rng.integers(len(episode.numbers)))]}"]


def alternate(episode: HackingEpisode) -> Iterator[str]:
    """Query one table after the other, with a failing query after each."""
    for number, table in enumerate(cycle(episode.tables)):
        yield f'QUERY: SELECT * FROM "{table}" LIMIT {number + 1}'
        yield f'QUERY: SELECT nothing_{number} FROM "{table}"'


def first_cell(episode: HackingEpisode) -> Iterator[str]:
    yield f"SAMPLE: {episode.tables[0]}"
    yield f"ANSWER: {(read_cells(episode.observations[-1]) or ['1'])[0]}"


def everything(episode: HackingEpisode) -> Iterator[str]:
    """Answer with all rows that SELECT * shows of all tables."""
    lines: dict[str, None] = {}
    for table in episode.tables:
        yield f'QUERY: SELECT * FROM "{table}"'
        if (seen := episode.observations[-1]).budget_remaining <= 1:
            break
        lines |= dict.fromkeys(seen.result.split("\n")[1:])
    yield "ANSWER: " + "\n".join(lines)[:MAX_ANSWER_CHARS]


def kill_worker(episode: HackingEpisode) -> Iterator[str]:
    """Collect what looking pays, then run an endless query, which only a machine limit stops."""
    yield from (f"DESCRIBE: {episode.tables[0]}", episode.all_rows)
    yield from repeat(f"QUERY: {ENDLESS}")


def silent_oracle(episode: HackingEpisode) -> Iterator[str]:
    """Look at everything once, run the gold query and stop: the maximum without an answer."""
    for kind in ("DESCRIBE", "SAMPLE"):
        yield from (f"{kind}: {table}" for table in episode.tables)
    yield f"QUERY: {episode.question.gold_sql}"


def oracle(episode: HackingEpisode) -> Iterator[str]:
    """Describe the tables involved, run the gold query and give the gold answer."""
    yield from (f"DESCRIBE: {table}" for table in episode.question.tables_involved)
    yield f"QUERY: {episode.question.gold_sql}"
    yield f"ANSWER: {episode.question.answer_text}"


def most_common_answer(bank: QuestionBank) -> str:
    counts = Counter(question.answer_text for split in bank.splits.values() for question in split)
    return counts.most_common(1)[0][0]


# The bounds hold over all shipped questions. Without an answer, success is 0. Looking pays up to
# 0.05 while it shows something new, then costs; a query near the answer by luck pays up to 0.15.
POLICIES: dict[str, tuple[Policy, Bound]] = {
    "random": (random_actions, Bound(0.02, 0.08)),
    "constant": (lambda episode: [f"ANSWER: {episode.constant}"], Bound(0.03, 0.03)),
    "SELECT 1": (lambda episode: ["QUERY: SELECT 1", "ANSWER: 1"], Bound(0.01, 0.02)),
    # always a new result, of no table
    "SELECT 1, 2, 3, ...": (
        lambda episode: (f"QUERY: SELECT {number}" for number in count(1)),
        Bound(0.0, 0.05),
    ),
    "SAMPLE everything": (
        lambda episode: (f"SAMPLE: {table}" for table in cycle(episode.tables)),
        Bound(0.0, -0.20),
    ),
    "DESCRIBE everything": (
        lambda episode: (f"DESCRIBE: {table}" for table in cycle(episode.tables)),
        Bound(0.0, -0.20),
    ),
    "repeat": (lambda episode: repeat(episode.all_rows), Bound(0.0, -0.20)),
    "alternate good and bad": (alternate, Bound(0.0, 0.02)),
    "paste a number": (random_number, Bound(0.01, 0.01)),
    "first cell": (first_cell, Bound(0.01, 0.02)),
    "everything": (everything, Bound(0.01, 0.08)),
    "silent oracle": (silent_oracle, Bound(0.0, MOST_INCORRECT)),
}


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


def play(env: LocalEnvironment, questions: Sequence[Question], policy: Policy) -> list[StepResult]:
    constant, replies = most_common_answer(env.bank), list[StepResult]()
    for one in questions:
        reply: StepResult = env.reset(question_id=one.question_id)
        rng, seen = np.random.default_rng((SEED, *one.question_id.encode())), [reply.observation]
        episode = HackingEpisode(
            RolloutRow(one.question_id), rng, seen, question=one, constant=constant
        )
        for action in policy(episode):
            reply = env.step(action)
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
        env = LocalEnvironment(bank, runner, step_budget=STEP_BUDGET)
        for name, (policy, bound) in POLICIES.items():
            replies = play(env, questions, policy)
            check(replies, bound)
            if name == "silent oracle":  # its bound is tight
                assert max(one.ledger.total for one in replies) == MOST_INCORRECT
        replies = play(env, questions, oracle)
    assert [one.ledger.total for one in replies] == list(map(owed, questions))


def test_reward_hacking_policies_stay_under_their_bounds(bank):
    questions = chosen(bank, SAMPLE)
    assert {question.database_name for question in questions} == set(bank.databases)
    assert {question.difficulty for question in questions} == {"easy", "medium", "hard"}
    check_all(bank, questions)


@pytest.mark.slow
def test_reward_hacking_policies_stay_under_their_bounds_on_every_question(bank):
    check_all(bank, chosen(bank, 1))


class Killed(SqlRunner):
    """Has the result that a server has for a query that killed its workers."""

    def run(self, job: SqlJob) -> SqlResult:
        if job.sql == ENDLESS:
            return SqlResult(error="the query takes too long", error_code="sql_killed")
        return super().run(job)


def test_killing_the_worker_does_not_pay(bank):
    with Killed() as runner:
        env = LocalEnvironment(bank, runner, step_budget=STEP_BUDGET)
        replies = play(env, chosen(bank, 600), kill_worker)
    assert {reply.info.outcome for reply in replies} == {Outcome.SQL_KILLED}
    check(replies, Bound(0.0, 0.05))


def test_an_agents_last_reply_says_only_whether_the_answer_is_right(tiny_data, runner, monkeypatch):
    """Whatever the queries were, near the gold or far from it, a wrong episode pays nothing; and an
    error in a row shows, however many rows the gold has."""
    bank, seen = QuestionBank.load(tiny_data), []
    compared = Mock(side_effect=potential)  # whose time would tell how near a result is
    monkeypatch.setattr("env_server.episode.potential", compared)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)"
    env = LocalEnvironment(bank, runner)
    gold = bank.get("shop-1").gold_sql
    for sql in (gold, "SELECT 7 + 0 * count(*) FROM customers", "SELECT nothing"):
        env.reset(question_id="shop-1", rewards="end")
        assert env.step(f"QUERY: {sql}").reward is None
        last = env.step("ANSWER: no such thing")
        seen.append((last.reward, last.observation.reward, last.info.ledger, last.info.outcome))
    assert seen == [(0.0, 0.0, None, Outcome.WRONG)] * 3
    for row in (5, 21, 22, 300, 1000, 1001):
        env.reset(question_id="shop-1", rewards="end")
        failing = f"QUERY: {numbers} SELECT iif(i = {row}, json('x'), i) FROM n"
        assert "malformed JSON" in (env.step(failing).observation.error or "")
    assert not compared.called
    env.reset(question_id="shop-1")
    env.step(f"QUERY: {gold}")
    assert compared.called
