"""Properties of rewards that hold for all episodes and every version of the amounts."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.rewards import EMPTY_LEDGER, VERSIONS, RewardRules, StepFacts, settle
from shared.models import RewardLedger

facts = st.builds(
    StepFacts,
    exec_ok=st.booleans(),
    new_info=st.booleans(),
    repeat=st.booleans(),
    potential=st.integers(0, 10_000).map(lambda value: value / 10_000),
)
versions = pytest.mark.parametrize("rules", VERSIONS.values(), ids=list(VERSIONS))


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
