"""The query behind an answer, and the reasons to doubt it."""

from io import StringIO

import pytest
from rich.console import Console

from shared.actions import ActionType, parse_action
from shared.models import Outcome
from trainer.play.display import Screen
from trainer.play.played import PlayedQuestion, PlayStep

BOUGHT = "buyer | total\nAnn | 10.5\nBo | 99.0\nCy | 2979.4138"
Reply = tuple[str, str, str | None]  # action, result, error
DESCRIBED: Reply = ("DESCRIBE: orders", "orders: 3 rows\nbuyer TEXT", None)
QUERIED: Reply = ("QUERY: SELECT buyer, total FROM orders", BOUGHT, None)
FAILED: Reply = ("QUERY: SELECT name FROM orders", "", "no such column: name")


def played(*replies: Reply, answer: str) -> PlayedQuestion:
    steps = []
    for number, (text, result, error) in enumerate((*replies, (f"ANSWER: {answer}", "", None)), 1):
        action = parse_action(text)
        kind, argument = action.action_type, action.argument
        rest = (False, result, error, "sql_error" if error else None, 9, None, 0.1, 0.1)
        steps.append(PlayStep(number, text, kind, argument, *rest))
    return PlayedQuestion("Who?", steps=steps, outcome=Outcome.ANSWERED, answer=answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Ann",
        "ann",
        "99",
        "2979.41",
        "2,979.41",
        "Ann\nBo",
        "Ann | 10.5\nBo | 99.0",
        '["Ann", "Cy"]',
        '[["Ann", 10.5], ["Bo", 99]]',
    ],
)
def test_an_answer_that_its_query_returned_is_not_doubted(answer: str) -> None:
    found = played(DESCRIBED, QUERIED, answer=answer)
    assert found.doubts == []
    assert found.query is not None
    assert found.as_json()["query"] == "SELECT buyer, total FROM orders"


@pytest.mark.parametrize(
    ("replies", "answer", "doubts"),
    [
        ((DESCRIBED,), "3", ["no query behind it worked"]),
        ((FAILED,), "3", ["no query behind it worked"]),
        ((FAILED, QUERIED), "Ann", []),
        ((QUERIED,), "Dan", ["it is not in the result of the query"]),
        ((QUERIED,), '["Ann", "Dan"]', ["it is not in the result of the query"]),
        ((QUERIED,), "[" * 20_000, ["it is not in the result of the query"]),
        ((QUERIED,), "100", []),  # 99.0, rounded
        ((QUERIED,), "110", ["it is not in the result of the query"]),
        ((("QUERY: SELECT 1 FROM orders", "1\n(no rows)", None),), "1",
         ["the query behind it returned no rows"]),
        ((FAILED, FAILED, QUERIED), "Ann", ["an action that failed was repeated"]),
        ((("DESCRIBE: order", "", "no table"), ("SAMPLE: order", "", "no table"), QUERIED), "Ann",
         []),
        ((FAILED, FAILED), "7",
         ["no query behind it worked", "an action that failed was repeated"]),
    ],
)  # fmt: skip
def test_what_usually_goes_with_a_wrong_answer_is_said(
    replies: tuple[Reply, ...], answer: str, doubts: list[str]
) -> None:
    found = played(*replies, answer=answer)
    assert found.doubts == doubts
    assert found.as_json()["doubts"] == doubts


def test_the_screen_shows_the_query_and_the_doubts() -> None:
    file = StringIO()
    screen = Screen(Console(file=file, width=80, color_system="standard", force_terminal=True))
    screen.end(played(QUERIED, answer="Ann"))
    sure = file.getvalue()
    assert "\x1b[32m╭" in sure  # green
    assert "unsure" not in sure
    screen.end(played(FAILED, FAILED, QUERIED, answer="Dan"))
    unsure = file.getvalue()[len(sure) :]
    assert "\x1b[33m╭" in unsure  # yellow
    plain = Console(file=StringIO(), width=80)
    Screen(plain).end(played(FAILED, FAILED, QUERIED, answer="Dan"))
    assert plain.file.getvalue().splitlines()[4:7] == [  # type: ignore[attr-defined]
        "from SELECT buyer, total FROM orders",
        "unsure: it is not in the result of the query",
        "unsure: an action that failed was repeated",
    ]


def test_a_question_without_an_answer_has_nothing_to_doubt() -> None:
    found = played(FAILED, answer="x")
    found.steps.pop()
    found.answer = None
    assert found.doubts == []
    assert found.query is None
    assert found.steps[0].action is ActionType.QUERY
