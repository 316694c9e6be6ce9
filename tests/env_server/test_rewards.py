"""Rewards: amounts, bounds, potential, and that correct episodes pay more than incorrect ones.

And the progress of a QUERY whose rows outnumber the gold's, in whole episodes.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server import rewards
from env_server.questions import QuestionBank
from env_server.rewards import (
    EMPTY_LEDGER,
    RULES,
    VERSIONS,
    GoldCells,
    RewardRules,
    StepFacts,
    settle,
)
from env_server.sql.run import SqlRunner
from shared.actions import normalise
from shared.models import RewardLedger
from tests.conftest import make_database, question_row, write_questions
from tests.env_server.in_process import LocalEnvironment

GOLD = [("Oslo", 3), ("Bergen", 1)]


def facts(**changes: object) -> StepFacts:
    return StepFacts(**{"exec_ok": True, "new_info": True, "repeat": False, **changes})  # type: ignore[arg-type]


def potential(rows: rewards.Rows, truncated: bool, gold: rewards.Rows, reads_data: bool) -> float:
    return rewards.potential(rows, truncated, GoldCells(gold), reads_data)


def play(steps: list[StepFacts], rules: RewardRules = RULES) -> tuple[list[float], RewardLedger]:
    rewards, ledger = [], EMPTY_LEDGER
    for step in steps:
        reward, ledger = settle(ledger, step, rules)
        rewards.append(reward)
    return rewards, ledger


@pytest.mark.parametrize(
    ("step", "parts", "reward"),
    [
        (facts(), {"exec_ok": 0.02, "new_info": 0.01}, 0.01),
        (facts(new_info=False), {"exec_ok": 0.02}, 0.0),
        (facts(new_info=False, repeat=True), {"exec_ok": 0.02, "repeat": -0.03}, -0.03),
        (facts(exec_ok=False, new_info=False), {}, -0.02),
        (facts(exec_ok=False, new_info=False, repeat=True), {"repeat": -0.03}, -0.05),
        (facts(new_info=False, correct=True), {"exec_ok": 0.02, "correctness": 1.0}, 1.0),
        (facts(potential=0.5), {"exec_ok": 0.02, "new_info": 0.01, "progress": 0.075}, 0.085),
    ],
)
def test_reward_of_a_first_step(step, parts, reward):
    paid, ledger = settle(EMPTY_LEDGER, step)
    assert (paid, ledger.step, ledger.total) == (reward, {**parts, "step_cost": -0.02}, reward)


def test_a_step_pays_the_change_of_the_clamped_sum():
    rewards, ledger = play([facts()] * 8)
    assert rewards == [0.01] * 5 + [0.0] * 3
    assert (ledger.operational, ledger.total, ledger.step["clamp"]) == (0.05, 0.05, -0.01)
    # A penalty after that costs at once: nothing was saved up above the bound.
    reward, _ = settle(ledger, facts(new_info=False, repeat=True))
    assert reward == -0.03
    rewards, ledger = play([facts(exec_ok=False, new_info=False, repeat=True)] * 8)
    assert ledger.operational == -0.25
    assert rewards == [-0.05] * 5 + [0.0] * 3


def test_only_a_better_query_pays_progress():
    rewards, ledger = play([facts(potential=p, new_info=False) for p in (0.4, 0.2, 0.4, 1.0, 0.0)])
    assert rewards == [0.06, 0.0, 0.0, 0.09, 0.0]
    assert (ledger.potential, ledger.progress) == (1.0, 0.15)


def test_amounts_are_whole_millionths_and_never_minus_zero():
    reward, ledger = settle(EMPTY_LEDGER, facts(potential=1 / 7))
    assert (ledger.progress, reward, ledger.total) == (0.021429, 0.031429, 0.031429)
    rewards, ledger = play([facts()] * 8)  # at the bound, the parts sum to -0.0
    assert str(rewards[-1]) == "0.0"
    assert all(str(amount) != "-0.0" for amount in ledger.step.values())


steps = st.lists(
    st.builds(
        StepFacts,
        exec_ok=st.booleans(),
        new_info=st.booleans(),
        repeat=st.booleans(),
        potential=st.integers(0, 10_000).map(lambda value: value / 10_000),
        correct=st.just(False),
    ),
    max_size=30,
)
versions = pytest.mark.parametrize("rules", VERSIONS.values(), ids=list(VERSIONS))


@versions
@given(right=steps, wrong=steps)
def test_right_outscores_wrong_in_every_version(rules, right, wrong):
    _, correct = play([*right, facts(new_info=False, correct=True)], rules)
    _, other = play(wrong, rules)
    least_correct = round(rules.sum_bounds[0] + rules.correct, 6)
    most_incorrect = round(rules.sum_bounds[1] + rules.progress_weight, 6)
    assert correct.total >= least_correct > most_incorrect >= other.total
    assert rules.weighted(correct) > rules.weighted(other)


@versions
@given(played=steps)
def test_the_ledger_adds_up_exactly(rules, played):
    for end in ([], [facts(new_info=False, correct=True)]):
        rewards, ledger = play([*played, *end], rules)
        assert ledger.total == round(sum(rewards), 6)
        assert ledger.total == round(ledger.operational + ledger.progress + ledger.correctness, 6)
        assert rules.weighted(ledger) == pytest.approx(ledger.total, abs=1e-6)  # as trainers do
        best = max((step.potential for step in played), default=0.0)
        assert ledger.progress == round(rules.progress_weight * best, 6)
        assert not rewards or round(sum(ledger.step.values()), 6) == rewards[-1]


def test_the_gold_has_the_full_potential():
    assert potential(GOLD, False, GOLD, True) == 1.0
    assert potential(list(reversed(GOLD)), False, GOLD, True) == 1.0
    assert potential([("Oslo",)], False, [("Oslo",)], True) == 1.0
    assert potential([(5.0,)], False, [(5,)], True) == 1.0
    assert potential([(3, "Oslo"), (1, "Bergen")], False, GOLD, True) == 1.0  # in any column order


def test_nothing_is_paid_without_a_table_or_a_row():
    assert potential([(1,)], False, [(1,)], reads_data=False) == 0.0
    assert potential([], False, GOLD, True) == 0.0
    assert potential(GOLD, False, [], True) == 0.0


@pytest.mark.parametrize(
    ("value", "gold", "near"),
    [
        (100, 100, 1.0),
        (99, 100, 0.99),
        (50, 100, 0.5),
        (150, 100, 0.5),  # by the gold's size, not by the query's
        (400, 100, 0.0),
        (0, 100, 0.0),
        (-60, -40, 0.5),
        (2, 4, 0.5),
        (0.75, 0.25, 0.5),  # by at least 1
        (1.5, 0, 0.0),
        (-0.5, 0, 0.5),
    ],
)
def test_the_gold_scales_the_nearness_of_numbers(value, gold, near):
    overlap = 1.0 if value == gold else 0.0
    expected = round(0.25 + 0.5 * overlap + 0.25 * near, 4)
    assert potential([(value,)], False, [(gold,)], True) == expected


def test_minimum_and_maximum_count_half_each():
    gold = [(100,), (200,)]
    # one of three different cells in common
    assert potential([(100,), (100,)], False, gold, True) == round(0.25 + 0.5 / 3 + 0.25 * 0.75, 4)
    assert potential([(200,), (200,)], False, gold, True) == round(0.25 + 0.5 / 3 + 0.25 * 0.5, 4)


@pytest.mark.parametrize("cell", [0, "", None, b"", float("inf"), 2**60])
def test_a_cell_of_any_type_counts(cell):
    assert potential([(cell,)], False, [(cell,)], True) == 1.0


def test_spaces_around_a_text_and_last_digits_of_a_sum_do_not_count():
    assert potential([(" Oslo\n",)], False, [("Oslo",)], True) == 1.0
    other = potential([("Rome",)], False, [("Oslo",)], True)
    for text in ("Os lo", "oslo", "OSLO"):
        assert potential([(text,)], False, [("Oslo",)], True) == other
    assert potential([(0.1 + 0.2,)], False, [(0.3,)], True) == 1.0
    assert potential([(0.30001,)], False, [(0.3,)], True) == 0.5


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("QUERY: SELECT a FROM t", "QUERY: select  A\nfrom T ;", True),
        ("QUERY: SELECT count(*) FROM t", "QUERY: SELECT count( * ) FROM t -- again", True),
        ("QUERY: SELECT 1/*x*/+1", "QUERY: SELECT 1 + 1", True),
        ("QUERY: SELECT 'a'", "QUERY: SELECT 'A'", False),
        ("QUERY: SELECT 'a  b'", "QUERY: SELECT 'a b'", False),
        ('QUERY: SELECT "a b"', 'QUERY: SELECT "A b"', False),
        ("QUERY: SELECT 'it''s' , 1", "QUERY: SELECT 'it''s',1", True),
        ("QUERY: SELECT 1 - -1", "QUERY: SELECT 1", False),
        ("QUERY: SELECT ab", "QUERY: SELECT a b", False),
        ("DESCRIBE: T", "DESCRIBE: t", True),
        ("DESCRIBE: t", "SAMPLE: t", False),
    ],
)
def test_what_counts_as_a_repeat(one, other, same):
    assert (normalise(one) == normalise(other)) is same


NAMES = [f"name {number}" for number in range(60)]
LENGTHS = (3, 19, 20, 25)  # of golds; 20 rows of a result are shown


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEnvironment]:
    root = tmp_path_factory.mktemp("names")
    values = ", ".join(f"('{name}')" for name in NAMES)
    script = f"CREATE TABLE names (name TEXT); INSERT INTO names VALUES {values};"
    make_database(root / "databases" / "names" / "names.sqlite", script)
    questions = [
        question_row(
            f"first-{length}", "names", f"Which are the first {length} names?",
            f"SELECT name FROM names LIMIT {length}", NAMES[:length], "list", "easy", "names",
        )
        for length in LENGTHS
    ]  # fmt: skip
    write_questions(root, train=questions[1:], eval=questions[:1])
    with SqlRunner() as runner:
        yield LocalEnvironment(QuestionBank.load(root), runner)


def progress(env: LocalEnvironment, gold: int, rows: int) -> float:
    env.reset(question_id=f"first-{gold}")
    return env.step(f"QUERY: SELECT name FROM names LIMIT {rows}").info.ledger.potential


@pytest.mark.parametrize("gold", LENGTHS)
def test_a_query_longer_than_the_gold_never_looks_as_long(env, gold):
    """Without numbers in the gold, cardinality counts a third and overlap two thirds."""
    assert progress(env, gold, gold) == 1.0
    assert progress(env, gold, gold + 1) == round(gold / (gold + 1), 4)
    # of a result that is cut, only the cells that are compared count
    compared = max(20, gold + 1)
    for rows in (compared + 1, compared + 9):
        assert progress(env, gold, rows) == pytest.approx(2 / 3 * gold / compared, abs=1e-4)
