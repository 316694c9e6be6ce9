"""One text is one answer: no wrapping makes it several, so listing candidates does not pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.verifier import STANDARDS, Gold, answer_verdicts, judge_answer
from shared.models import AnswerType

INTEGERS = [
    Gold.of(number, "integer", "SELECT 1", "How many people?")
    for number in (*range(-12, 40), 1234, -1234, 234)
]
PIECES = [
    "1", "2", "12", "0", "-", "1.5", ",", ", ", " ", "\n", "|", " | ", "\n---\n", "[", "]", '"',
    "'", "{", "}", ":",
    "- ", "1. ", "Answer: ", "**", "```", " kg", "%", "$", " people", "true", "null", "e1", ".",
    "(", ")", "\\|",
    '"a":', "000", " or ", "/", ";", "; ", " and ", "\t", ": ", "* ", "\u2013", "\u2212", "1,234",
    "\\boxed{", "\\text{", "$",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_a_text_is_right_for_one_integer_at_most(text: str) -> None:
    assert sum(judge_answer(text, right) for right in INTEGERS) <= 1


@given(
    st.lists(
        st.sampled_from([*PIECES, "Ann", "2021-03-01", "\u0301", "\x00", "\ud800"]), max_size=12
    ).map("".join)
)
def test_any_wrapping_has_a_verdict_by_every_standard(text: str) -> None:
    golds: list[tuple[object, AnswerType]] = [
        (1, "integer"), (1.5, "float"), ("Ann", "string"), (["1", None], "list"),
        ([["Ann", 1], ["2021-03-01", 2]], "table"),
    ]  # fmt: skip
    for answer, kind in golds:
        gold = Gold.of(answer, kind, "SELECT 1")
        each = {name: standard.answer(text, gold) for name, standard in STANDARDS.items()}
        assert answer_verdicts(text, gold) == each
        # the others accept what strict accepts
        assert (each["bird"] and each["spider"]) or not each["strict"]


@pytest.mark.parametrize(
    "joint", ["\n", ", ", ",", " | ", "; ", " or ", " and ", "/", " ", "\n\n", "|\n|", "\n---\n"]
)
@pytest.mark.parametrize(
    "dress",
    ["{}", "[{}]", "({})", "Answer: {}", "```\n{}\n```", "| {} |", "- {}", "**{}**", "{{{}}}"],
)
def test_all_that_might_be_right_is_wrong(joint: str, dress: str) -> None:
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


def test_a_round_number_is_no_net_for_the_floats_around_it() -> None:
    floats = [10 + hundredths / 100 for hundredths in range(100)]
    for text in ("10", "10.", "11", "1e1", "10 or so", "~10.5", "10-11"):
        # 10.0 itself
        assert sum(judge_answer(text, Gold.of(right, "float", "SELECT 1")) for right in floats) <= 1
    caught = [
        right for right in floats if judge_answer("10.5", Gold.of(right, "float", "SELECT 1"))
    ]
    # to the digit given
    assert caught == [10.45, 10.46, 10.47, 10.48, 10.49, 10.5, 10.51, 10.52, 10.53, 10.54, 10.55]
