"""The table of forms: each has its verdict, none is right for another gold; copied results."""

from typing import Any

import pytest

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.render import render_cell
from env_server.sql.run import SqlRunner
from env_server.verifier import Gold, answer_verdicts, judge_answer
from shared.models import Outcome
from tests.env_server.verifier.forms import ANSWERS, FORMS, Case


@pytest.mark.parametrize("case", [*FORMS, *ANSWERS], ids=lambda case: repr(case.answer))
def test_every_text_has_its_verdict(case: Case) -> None:
    """The right ones of `FORMS` are right by every standard."""
    assert [text for text in case.right if not judge_answer(text, case.gold)] == []
    assert [text for text in case.wrong if judge_answer(text, case.gold)] == []
    if case in FORMS:
        assert all(all(answer_verdicts(text, case.gold).values()) for text in case.right)


def test_no_form_is_right_for_two_golds_of_a_kind() -> None:
    golds = {(gold.answer_type, str(gold.rows)): gold for gold in (case.gold for case in FORMS)}
    for text in {text for case in FORMS for text in (*case.right, *case.wrong)}:
        kinds = [kind for (kind, _), gold in golds.items() if judge_answer(text, gold)]
        assert len(kinds) == len(set(kinds)), (text, kinds)


# -- a result copied as the environment shows it


@pytest.fixture
def env(tiny_data: Any) -> Any:
    with SqlRunner() as runner:
        yield SQLEnvironment(QuestionBank.load(tiny_data), runner)


@pytest.mark.parametrize(
    ("question_id", "sql"),
    [
        ("zoo-1", "SELECT count(*) FROM animals WHERE species = 'lion'"),
        ("zoo-2", "SELECT species AS s, count(*) FROM animals GROUP BY 1 ORDER BY 2 DESC"),
        ("zoo-3", "SELECT name FROM keepers WHERE salary = 28500"),
    ],
)
@pytest.mark.parametrize("dress", ["{}", "```\n{}\n```", "Answer:\n{}"])
def test_a_copied_result_is_right(
    env: SQLEnvironment, question_id: str, sql: str, dress: str
) -> None:
    env.reset(question_id=question_id)
    shown = env.step(f"QUERY: {sql}").observation.result
    assert env.step(f"ANSWER: {dress.format(shown)}").info.outcome == Outcome.CORRECT
    # the same text that was not shown is rows, of which the first is wrong
    env.reset(question_id=question_id)
    env.step(f"DESCRIBE: {'keepers' if 'keepers' in sql else 'animals'}")
    assert env.step(f"ANSWER: {dress.format(shown)}").info.outcome == Outcome.WRONG


def test_only_the_whole_result_is_a_copy(env: SQLEnvironment) -> None:
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


def test_a_copied_result_has_one_reading() -> None:
    text = "Ann\nBob"
    for answer, as_rows, as_copy in ((["Ann", "Bob"], True, False), (["Bob"], False, True)):
        gold = Gold.of(answer, "list", "SELECT a FROM t")
        assert set(answer_verdicts(text, gold).values()) == {as_rows}
        assert set(answer_verdicts(text, gold, text.__eq__).values()) == {as_copy}


def test_a_copy_keeps_null_empty_cells_and_bars_of_one_column() -> None:
    rows = [["Ann", None], ["", 2.5], ["x", ""]]
    text = "a | b\nAnn | NULL\n | 2.5\nx |"
    assert judge_copy(text, Gold.of(rows, "table", "SELECT a FROM t"))
    assert judge_copy("a\nb | c\nd", Gold.of(["b | c", "d"], "list", "SELECT a FROM t"))
    assert judge_copy("a\n(no rows)", Gold.of([], "list", "SELECT a FROM t"))
    assert not judge_copy("a\n1\n(first 1 rows; there are more)", Gold.of([1], "list", "SELECT 1"))


def test_a_text_is_right_as_the_environment_shows_it() -> None:
    for text in ("a\tb", "a\x07b", "a\u2028b", "a\r\nb", "a\x1fb"):
        for shown in (text, render_cell(text), f'"{render_cell(text)}"'):
            assert judge_answer(shown, Gold.of(text, "string", "SELECT 1"))
        in_list = f"{render_cell(text)}; c"
        assert judge_answer(in_list, Gold.of([text, "c"], "list", "SELECT 1"))


def judge_copy(text: str, gold: Gold) -> bool:
    return answer_verdicts(text, gold, text.__eq__)["strict"]
