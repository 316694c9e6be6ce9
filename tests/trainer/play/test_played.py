"""What confirms an answer, and what is shown of one that nothing confirms."""

from io import StringIO

import pytest
from rich.console import Console

from shared.actions import parse_action
from shared.models import Outcome
from trainer.play.display import Screen
from trainer.play.output_formats import ANSWER, Table, answer_table
from trainer.play.played import PlayedAttempt, PlayedQuestion, PlayStep, confirms
from trainer.rollout.vote import answer_key

BOUGHT = "buyer | total\nAnn | 10.5\nBo | 99.0\nCy | 2979.4138\n(first 3 rows; there are more)"
Reply = tuple[str, str, str | None]  # action, result, error
DESCRIBED: Reply = ("DESCRIBE: orders", "orders: 3 rows\nbuyer TEXT", None)
QUERIED: Reply = ("QUERY: SELECT buyer, total FROM orders", BOUGHT, None)
COUNTED: Reply = ("QUERY: SELECT count(*) FROM orders", "count(*)\n7", None)
FAILED: Reply = ("QUERY: SELECT name FROM orders", "", "no such column: name")
EMPTY: Reply = ("QUERY: SELECT 1 FROM orders", "1\n(no rows)", None)
NULLS: Reply = ("QUERY: SELECT max(x), '' FROM orders", "max(x) | ''\nNULL | ", None)


def played(*replies: Reply, said: str | None) -> PlayedQuestion:
    steps = []
    for number, (text, result, error) in enumerate((*replies, (f"ANSWER: {said}", "", None)), 1):
        action = parse_action(text)
        kind, argument = action.action_type, action.argument
        rest = (False, result, error, None, 0.1)
        steps.append(PlayStep(number, text, kind, argument, *rest))
    key = None if said is None else answer_key(said)
    attempt = PlayedAttempt(steps=steps, outcome=Outcome.ANSWERED, said=said, key=key)
    return PlayedQuestion("Who?", attempts=[attempt])


def shown(question: PlayedQuestion) -> str:
    file = StringIO()
    screen = Screen(Console(file=file, width=80))
    if len(question.attempts) == 1:
        for step in question.steps:
            screen.step(step)
    screen.end(question)
    return file.getvalue()


@pytest.mark.parametrize(
    "said",
    [
        *("Ann", "ann", "99", "2979.41", "2,979.41", "100"),  # the last: 99.0, rounded
        *("Ann\nBo", "Ann, Bo", "Ann | 10.5\nBo | 99.0"),
        *('["Ann", "Cy"]', '[["Ann", 10.5], ["Bo", 99]]'),
    ],
)
@pytest.mark.parametrize("later", [(), (COUNTED,), (FAILED,)])
def test_an_answer_that_a_query_returned_is_shown_with_it(said, later):
    found = played(DESCRIBED, QUERIED, *later, said=said)
    assert found.answer == found.as_json()["answer"] == said
    assert found.as_json()["query"] == "SELECT buyer, total FROM orders"
    assert "answer, unchecked" in shown(found)
    assert "from SELECT buyer, total FROM orders" in shown(found)


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        ((DESCRIBED,), "Dan"),
        ((("SAMPLE: orders", "buyer\nDan", None),), "Dan"),
        ((FAILED,), "Dan"),
        ((QUERIED,), "Dan"),
        ((QUERIED,), '["Ann", "Dan"]'),
        ((QUERIED,), "[" * 20_000),
        ((QUERIED,), "110"),
        ((QUERIED,), "(first 3 rows; there are more)"),
        ((("QUERY: SELECT y FROM t", "y\n1999", None),), "2010"),  # near, as numbers go
        ((QUERIED, EMPTY), "1"),
    ],
)
def test_an_answer_that_no_query_returned_is_never_shown(replies, said):
    found = played(*replies, said=said)
    assert (found.answer, found.as_json()["answer"]) == (None, None)
    assert found.as_json()["attempts"][0]["said"] == said
    text = shown(found)
    assert "the answer is not confirmed: no query of the agent's returned it" in text
    assert "answer, unchecked" not in text
    if said not in ("1", "(first 3 rows; there are more)"):
        assert said not in text.replace("\n   Dan", "")  # of the SAMPLE
    last = [one for one in replies if one[0].startswith("QUERY") and one[2] is None]
    if last:
        query, result, _ = last[-1]
        _, _, after = text.partition("the last result, from ")
        lines = "\n   ".join([query.removeprefix("QUERY: "), *result.split("\n")])
        assert after.startswith(lines)


@pytest.mark.parametrize("said", ["None", "null", "NULL", "[]", "(no rows)"])
def test_an_answer_of_nothing_is_shown_as_such(said):
    for empty in (EMPTY, NULLS):
        found = played(QUERIED, empty, said=said)
        assert (found.answer, found.attempts[0].source) == (said, found.steps[1])
        assert "│ nothing found " in shown(found)
    text = shown(played(QUERIED, said=said))
    assert "no answer: the agent gave an empty one" in text
    assert "answer, unchecked" not in text


def test_a_question_without_an_answer():
    found = played(FAILED, said=None)
    found.attempts[0].steps.pop()
    assert found.answer is found.attempts[0].source is found.as_json()["query"] is None
    assert "no answer" in shown(found)


def test_what_repeats_a_failure():
    found = played(("SAMPLE: order", "", "no such table"), FAILED, QUERIED, said="Ann").attempts[0]
    assert found.repeats_failure("QUERY: SELECT name  FROM orders;")
    assert found.repeats_failure("I try again.\nSAMPLE: order")
    assert found.repeats_failure("SELECT name FROM orders")  # runs as a QUERY
    assert not found.repeats_failure("DESCRIBE: order")
    assert not found.repeats_failure("QUERY: SELECT buyer, total FROM orders")
    assert not found.repeats_failure("QUERY: SELECT name FROM order")


@pytest.mark.parametrize(
    ("result", "said", "columns", "rows"),
    [
        (
            "rank | team | points\n1 | Ann | 3\n2 | Bo | 2\n3 | Cy | 1",
            '[["Ann", 3], ["Bo", 2], ["Cy", 1]]',
            ["team", "points"],
            [["Ann", "3"], ["Bo", "2"], ["Cy", "1"]],
        ),
        ("id | sold\n1 | 3\n2 | 1\n3 | 2", "[3, 1, 2]", ["sold"], [["3"], ["1"], ["2"]]),
        ("name | size\nA | 10 ml\nB | 10 l", "B, 10 l", ["name", "size"], [["B", "10 l"]]),
        ("code | n\n010 | 5\n005 | 10", '[["005", 10]]', ["code", "n"], [["005", "10"]]),
        (
            "name | n\nANN | 1\nAnn | 2\nBo | 3",
            '[["Ann", 2], ["Bo", 3]]',
            ["name", "n"],
            [["Ann", "2"], ["Bo", "3"]],
        ),
        ("name\nANN\nAnn\nBo", '["Ann", "ann"]', ["name"], [["ANN"], ["Ann"]]),
        ("a | b\nx | 1\ny | 2", '[["x", 2]]', [ANSWER, ANSWER], [["x", "2"]]),  # of two rows
    ],
)
def test_the_cells_of_an_answer_are_those_of_its_rows(result, said, columns, rows):
    found = played(("QUERY: SELECT *", result, None), said=said)
    assert answer_table(found.attempts[0]) == Table(columns, rows)


@pytest.mark.parametrize("rest", ["", "\n(first 3 rows; there are more)"])
def test_a_note_says_if_not_all_rows_were_shown(rest):
    result = f"id | name\n1 | Ann\n2 | \n3 | Bo{rest}"
    for said in ('["Ann", "", "Bo"]', '[[1, "Ann"], [2, ""], [3, "Bo"]]'):
        table = answer_table(played(("QUERY: SELECT *", result, None), said=said).attempts[0])
        assert table is not None
        assert table.cut == bool(rest)
    one = answer_table(played(("QUERY: SELECT *", result, None), said="Bo").attempts[0])
    assert one == Table(["name"], [["Bo"]])


def test_a_number_beyond_all_floats_confirms_nothing():
    assert not confirms("price\n3.5", "1e400")
