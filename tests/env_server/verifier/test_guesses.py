"""One text is one answer: no wrapping makes it several, so listing candidates does not pay."""

from itertools import combinations_with_replacement, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.verifier import Gold, answer_verdicts, judge_answer
from shared.models import AnswerType

SQL = "SELECT a FROM t"
PIECES = [
    "1", "2", "12", "0", "234", "-", "-1", "1.5", "1,234", '"1,234"', "000", "e1", "Ann", ",", ", ",
    "; ", ";", ": ", ":", " and ", " or ", "/", ".", " ", "\t", "\n", " | ", "|", "\\|", "\n---\n",
    "|---|\n", "[", "]", "{", "}", "(", ")", '"', "'", '"a":', "- ", "* ", "1. ", "Answer: ", "**",
    "```", "\\boxed{", "\\text{", "$", "%", " kg", " people", "true", "null", "\u2013", "\u2212",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
CELLS = [1, 2, 12, 234, 1234, -1, "Ann"]
ROWS = [list(row) for row in product([1, 2, 234, 1234], repeat=2)]
ANSWERS: dict[AnswerType, list[Any]] = {
    "integer": [*range(-12, 40), 1234, -1234, 234],
    "list": [list(bag) for n in (1, 2, 3) for bag in combinations_with_replacement(CELLS, n)],
    "table": [list(rows) for n in (1, 2) for rows in combinations_with_replacement(ROWS, n)]
    + [[list(row)] for row in product([1, 2, 234, 1234], repeat=3)],
}


@pytest.mark.parametrize("kind", ANSWERS)
@given(text=TEXTS)
def test_a_text_is_right_for_one_gold_at_most(kind, text):
    golds = (Gold.of(answer, kind, SQL, "How many people?") for answer in ANSWERS[kind])
    assert sum(judge_answer(text, gold) for gold in golds) <= 1


@given(
    st.lists(
        st.sampled_from([*PIECES, "Ann", "2021-03-01", "\u0301", "\x00", "\ud800"]), max_size=12
    ).map("".join)
)
def test_any_wrapping_has_a_verdict_by_every_standard(text):
    golds: list[tuple[object, AnswerType]] = [
        (1, "integer"), (1.5, "float"), ("Ann", "string"), (["1", None], "list"),
        ([["Ann", 1], ["2021-03-01", 2]], "table"),
    ]  # fmt: skip
    for answer, kind in golds:
        gold = Gold.of(answer, kind, SQL)
        each = answer_verdicts(text, gold)
        assert each["strict"] == judge_answer(text, gold)
        # the others accept what strict accepts
        assert (each["bird"] and each["spider"]) or not each["strict"]


@pytest.mark.parametrize(
    "joint", ["\n", ", ", ",", " | ", "; ", " or ", " and ", "/", " ", "\n\n", "|\n|", "\n---\n"]
)
@pytest.mark.parametrize(
    "dress",
    ["{}", "[{}]", "({})", "Answer: {}", "```\n{}\n```", "| {} |", "- {}", "**{}**", "{{{}}}"],
)
def test_all_that_might_be_right_is_wrong(joint, dress):
    numbers = dress.format(joint.join(map(str, range(12))))
    names = dress.format(joint.join(["Ann", "Bob", "Zoë"]))
    quoted = dress.format(joint.join(['"Ann"', '"Bob"', '"Zoë"']))
    for right in range(12):
        assert not judge_answer(numbers, Gold.of(right, "integer", "SELECT 1"))
        assert not judge_answer(numbers, Gold.of(right + 0.5, "float", "SELECT 1"))
        assert not judge_answer(numbers, Gold.of([right, 11 - right], "list", "SELECT 1"))
        assert not judge_answer(numbers, Gold.of([[right, 3]], "table", "SELECT 1"))
    for name in ("Ann", "Bob", "Zoë"):
        assert not judge_answer(names, Gold.of(name, "string", "SELECT 1"))
        assert not judge_answer(quoted, Gold.of(name, "string", "SELECT 1"))


def test_a_round_number_is_no_net_for_the_floats_around_it():
    floats = [10 + hundredths / 100 for hundredths in range(100)]
    for text in ("10", "10.", "11", "1e1", "10 or so", "~10.5", "10-11"):
        # 10.0 itself
        assert sum(judge_answer(text, Gold.of(right, "float", "SELECT 1")) for right in floats) <= 1
    caught = [
        right for right in floats if judge_answer("10.5", Gold.of(right, "float", "SELECT 1"))
    ]
    # to the digit given
    assert caught == [10.45, 10.46, 10.47, 10.48, 10.49, 10.5, 10.51, 10.52, 10.53, 10.54, 10.55]
