"""Where order counts, golds that are not their type, and golds without rows."""

import pytest

from env_server.verifier import Gold, answer_verdicts, is_ordered, judge_answer
from tests.env_server.verifier.forms import gold_of

ORDERED, UNORDERED = "SELECT name FROM t ORDER BY age", "SELECT name FROM t"


def test_lists_with_order() -> None:
    gold = gold_of(["Ann", "Zoë", "Bob"], ORDERED, "")
    assert judge_answer("Ann, Zoë, Bob", gold)
    assert judge_answer('["Ann","Zoë","Bob"]', gold)
    assert not judge_answer("Bob, Zoë, Ann", gold)
    assert not judge_answer("Ann\nBob\nZoë", gold)


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t order  by a LIMIT 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a FROM t WHERE a = (SELECT b FROM u ORDER BY b LIMIT 1)", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a) SELECT a FROM x", False),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'order by' FROM t", False),
        ("SELECT a FROM t;", False),
        ("SELECT 'it''s (' || a FROM t ORDER BY a !! nonsense", True),  # what the parser can't read
    ],
)
def test_order_counts_at_the_top_level_alone(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered


def test_a_gold_that_is_not_its_type_is_refused() -> None:
    for answer, kind in (
        ("", "list"),
        (5, "list"),
        ([1, 2], "table"),
        ([[]], "table"),
        ({"a": 1}, "string"),
        ([1], "integer"),
    ):
        with pytest.raises(ValueError, match=r"not a|neither"):
            Gold.of(answer, kind, UNORDERED)  # type: ignore[arg-type]


NOTHING = ["[]", "none", "NULL", "null.", "**none**", "Answer: []", "```json\n[]\n```", "(no rows)"]


@pytest.mark.parametrize("kind", ["list", "table"])
def test_a_gold_without_rows(kind: str) -> None:
    empty = Gold.of([], kind, UNORDERED)  # type: ignore[arg-type]
    for text in NOTHING:
        assert answer_verdicts(text, empty) == {"strict": True, "spider": True, "bird": True}
        for other in (["a"], [["a", 1]], 0, "a"):
            assert not judge_answer(text, gold_of(other, UNORDERED, ""))
    for text in ("0", "[0]", "[null]", "[[]]", "Ann", "no", "unknown", "nothing, none"):
        assert not judge_answer(text, empty)
