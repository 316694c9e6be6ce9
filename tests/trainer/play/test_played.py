"""What confirms an answer, and what is shown of one that nothing confirms."""

from io import StringIO

import pytest
from rich.console import Console

from shared.actions import parse_action
from shared.models import Outcome
from trainer.play.display import Screen
from trainer.play.played import PlayedAttempt, PlayedQuestion, PlayStep
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
