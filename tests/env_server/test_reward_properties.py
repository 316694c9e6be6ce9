"""Properties of rewards that hold for all episodes and every version of the amounts."""

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.rewards import EMPTY_LEDGER, VERSIONS, RewardRules, StepFacts, settle
from env_server.sql.run import SqlRunner
from shared.models import Outcome, RewardLedger, StepResult

QUESTION, GOLD = "shop-3", "SELECT title FROM products ORDER BY price DESC LIMIT 1"
LOOKS = [
    "DESCRIBE: products",
    "DESCRIBE: orders",
    "SAMPLE: products",
    "SAMPLE: nowhere",
    "QUERY: SELECT 1",
    "QUERY: SELECT title FROM products",
    "QUERY: SELECT title FROM products WHERE price > 100",
    "QUERY: SELECT max(price) FROM products",
    "QUERY: SELECT nothing FROM products",
    f"QUERY: {GOLD}",
    f"QUERY: {GOLD} -- again",
    "QUERY: SELECT count(*) FROM orders",
]
looks = st.lists(st.sampled_from(LOOKS), max_size=14)
wrong_ends = st.sampled_from(
    ["ANSWER: chair", "ANSWER: 120.25", "ANSWER: lamp, desk", "ANSWER: it is the desk", None]
)
facts = st.builds(
    StepFacts,
    exec_ok=st.booleans(),
    new_info=st.booleans(),
    repeat=st.booleans(),
    potential=st.integers(0, 10_000).map(lambda value: value / 10_000),
)
versions = pytest.mark.parametrize("rules", VERSIONS.values(), ids=list(VERSIONS))


@pytest.fixture(scope="module")
def env(tiny_data: Path) -> Iterator[SQLEnvironment]:
    with SqlRunner() as runner:
        yield SQLEnvironment(QuestionBank.load(tiny_data), runner)


def play(env: SQLEnvironment, actions: list[str]) -> StepResult:
    result: StepResult = env.reset(question_id=QUESTION, step_budget=15)
    for action in actions:
        result = env.step(action)
    return result


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(right=looks, wrong=looks, end=wrong_ends)
def test_every_correct_episode_outscores_every_incorrect_one(
    env: SQLEnvironment, right: list[str], wrong: list[str], end: str | None
) -> None:
    correct = play(env, [*right, "ANSWER: desk"])
    other = play(env, [*wrong, end] if end else wrong)
    assert correct.info.outcome == Outcome.CORRECT
    assert other.info.outcome != Outcome.CORRECT
    assert correct.info.ledger.total >= 0.75 > 0.2 >= other.info.ledger.total


def run(steps: list[StepFacts], rules: RewardRules) -> RewardLedger:
    return reduce(lambda ledger, step: settle(ledger, step, rules)[1], steps, EMPTY_LEDGER)


@versions
@given(steps=st.lists(facts, max_size=30), data=st.data())
def test_progress_depends_on_the_best_query_only(
    rules: RewardRules, steps: list[StepFacts], data: st.DataObject
) -> None:
    shuffled = run(data.draw(st.permutations(steps)), rules)
    best = max((step.potential for step in steps), default=0.0)
    progress = round(rules.progress_weight * best, 6)
    assert run(steps, rules).progress == shuffled.progress == progress


@versions
@given(right=st.lists(facts, max_size=30), wrong=st.lists(facts, max_size=30))
def test_right_outscores_wrong_in_every_version(
    rules: RewardRules, right: list[StepFacts], wrong: list[StepFacts]
) -> None:
    answer = StepFacts(exec_ok=True, new_info=False, repeat=False, correct=True)
    correct, other = run([*right, answer], rules), run(wrong, rules)
    least_correct = round(rules.sum_bounds[0] + rules.correct, 6)
    most_incorrect = round(rules.sum_bounds[1] + rules.progress_weight, 6)
    assert correct.total >= least_correct > most_incorrect >= other.total
    assert rules.weighted(correct) > rules.weighted(other)
