"""The table of forms: each has its verdict, none is right for another gold; copied results.

And where order counts, golds that are not their type, and golds without rows.
"""

import pytest

from env_server.render import render_cell
from env_server.verifier import Gold, answer_verdicts, judge_answer
from env_server.verifier.gold import is_ordered
from shared.models import Outcome
from tests.env_server.verifier.forms import ANSWERS, FORMS, UNORDERED, gold_of


@pytest.mark.parametrize("case", [*FORMS, *ANSWERS], ids=lambda case: repr(case.answer))
def test_every_text_has_its_verdict(case):
    """The right ones of `FORMS` are right by every standard."""
    assert [text for text in case.right if not judge_answer(text, case.gold)] == []
    assert [text for text in case.wrong if judge_answer(text, case.gold)] == []
    if case in FORMS:
        assert all(all(answer_verdicts(text, case.gold).values()) for text in case.right)


def test_no_form_is_right_for_two_golds_of_a_kind():
    golds = {(gold.answer_type, str(gold.rows)): gold for gold in (case.gold for case in FORMS)}
    for text in {text for case in FORMS for text in (*case.right, *case.wrong)}:
        kinds = [kind for (kind, _), gold in golds.items() if judge_answer(text, gold)]
        assert len(kinds) == len(set(kinds)), (text, kinds)


# -- a result copied as the environment shows it


@pytest.mark.parametrize(
    ("question_id", "sql"),
    [
        ("zoo-1", "SELECT count(*) FROM animals WHERE species = 'lion'"),
        ("zoo-2", "SELECT species AS s, count(*) FROM animals GROUP BY 1 ORDER BY 2 DESC"),
        ("zoo-3", "SELECT name FROM keepers WHERE salary = 28500"),
    ],
)
@pytest.mark.parametrize("dress", ["{}", "```\n{}\n```", "Answer:\n{}"])
def test_a_copied_result_is_right(env, question_id, sql, dress):
    env.reset(question_id=question_id)
    shown = env.step(f"QUERY: {sql}").observation.result
    assert env.step(f"ANSWER: {dress.format(shown)}").info.outcome == Outcome.CORRECT
    # the same text that was not shown is rows, of which the first is wrong
    env.reset(question_id=question_id)
    env.step(f"DESCRIBE: {'keepers' if 'keepers' in sql else 'animals'}")
    assert env.step(f"ANSWER: {dress.format(shown)}").info.outcome == Outcome.WRONG


@pytest.mark.parametrize(
    ("noted", "outcome"), [("(note: ", Outcome.CORRECT), ("(Note: ", Outcome.WRONG)]
)
def test_a_result_may_be_copied_with_its_notes(env, noted, outcome):
    env.reset(question_id="zoo-1")
    shown = env.step("QUERY: SELECT 5 / 2 AS half FROM keepers LIMIT 1").observation.result
    assert "\n(note: " in shown
    answer = shown.replace("(note: ", noted)
    assert env.step(f"ANSWER: {answer}").info.outcome == outcome


def test_only_the_whole_result_is_a_copy(env):
    for change in (
        lambda text: text + "\nlion | 2",
        lambda text: text.replace("species", "name"),
        lambda text: text.rpartition("\n")[0],
        str.upper,
    ):
        env.reset(question_id="zoo-2")
        sql = "SELECT species, count(*) FROM animals GROUP BY species"
        shown = env.step(f"QUERY: {sql}").observation.result
        assert env.step(f"ANSWER: {change(shown)}").info.outcome == Outcome.WRONG


def test_a_copied_result_has_one_reading():
    text = "Ann\nBob"
    for answer, as_rows, as_copy in ((["Ann", "Bob"], True, False), (["Bob"], False, True)):
        gold = Gold.of(answer, "list", "SELECT a FROM t")
        assert set(answer_verdicts(text, gold).values()) == {as_rows}
        assert set(answer_verdicts(text, gold, text.__eq__).values()) == {as_copy}


def test_a_copy_keeps_null_empty_cells_and_bars_of_one_column():
    rows = [["Ann", None], ["", 2.5], ["x", ""]]
    text = "a | b\nAnn | NULL\n | 2.5\nx |"
    assert judge_copy(text, Gold.of(rows, "table", "SELECT a FROM t"))
    assert judge_copy("a\nb | c\nd", Gold.of(["b | c", "d"], "list", "SELECT a FROM t"))
    assert judge_copy("a\n(no rows)", Gold.of([], "list", "SELECT a FROM t"))
    assert not judge_copy("a\n1\n(first 1 rows; there are more)", Gold.of([1], "list", "SELECT 1"))


def test_a_text_is_right_as_the_environment_shows_it():
    for text in ("a\tb", "a\x07b", "a\u2028b", "a\r\nb", "a\x1fb"):
        for shown in (text, render_cell(text), f'"{render_cell(text)}"'):
            assert judge_answer(shown, Gold.of(text, "string", "SELECT 1"))
        in_list = f"{render_cell(text)}; c"
        assert judge_answer(in_list, Gold.of([text, "c"], "list", "SELECT 1"))


def judge_copy(text: str, gold: Gold) -> bool:
    return answer_verdicts(text, gold, text.__eq__)["strict"]


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
def test_order_counts_at_the_top_level_alone(sql, ordered):
    assert is_ordered(sql) is ordered


def test_a_gold_that_is_not_its_type_is_refused():
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
def test_a_gold_without_rows(kind):
    empty = Gold.of([], kind, UNORDERED)  # type: ignore[arg-type]
    for text in NOTHING:
        assert answer_verdicts(text, empty) == {"strict": True, "spider": True, "bird": True}
        for other in (["a"], [["a", 1]], 0, "a"):
            assert not judge_answer(text, gold_of(other, UNORDERED, ""))
    for text in ("0", "[0]", "[null]", "[[]]", "Ann", "no", "unknown", "nothing, none"):
        assert not judge_answer(text, empty)
