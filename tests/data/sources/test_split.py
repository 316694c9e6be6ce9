"""Held-out questions are no training question's twins."""

import pytest

from data.choose import Keyed, Splitting, held_out
from shared.dataset import Question
from tests.conftest import question_row


def question(name: str, text: str, sql: str, database: str = "shop") -> Question:
    return Question(**question_row(name, database, text, sql, 1, "integer", "easy"))


TEMPLATES = [
    question(f"{name}-{value}", f"{name} of {value}?", f"SELECT {name} FROM t WHERE x = {value}")
    for name in "abcdefgh"
    for value in range(5)
]  # fmt: skip
SINGLE = [question(f"q{n}", f"word{n} " * n, f"SELECT c{n} FROM t") for n in range(1, 21)]


@pytest.mark.parametrize("seed", range(5))
def test_questions_that_differ_in_a_value_stay_together(seed):
    chosen = held_out([*TEMPLATES, *SINGLE], Splitting(0.2, seed))
    assert 12 <= len(chosen) <= 18
    keyed = {one.question_id: Keyed(one) for one in [*TEMPLATES, *SINGLE]}
    for name in chosen:
        assert not [o for o in keyed if o not in chosen and keyed[name].likeness(keyed[o])]


def test_large_groups_come_last():
    chosen = held_out([*TEMPLATES[:10], *SINGLE], Splitting(0.2, 1))
    assert chosen < {one.question_id for one in SINGLE}


def test_without_small_groups_the_smallest_is_held_out():
    chosen = held_out(TEMPLATES[:9], Splitting(0.1, 1))
    assert chosen == {one.question_id for one in TEMPLATES[5:9]}


@pytest.mark.parametrize("questions", [[], SINGLE[:1], TEMPLATES[:5]])
def test_one_group_is_not_divided(questions):
    assert held_out(questions, Splitting()) == set()


def test_two_databases_are_divided():
    pair = [*SINGLE, question("z", "z?", "SELECT z FROM z", "zoo")]
    assert held_out(pair, Splitting()) == {"z"}
    assert held_out(pair, Splitting(0.9)) in ({"z"}, {one.question_id for one in SINGLE})
