"""Scripts from recorded episodes: successes, and failures mended by rewards or by gold."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from shared.dataset import Question
from trainer.sft.recorded import RECORDED, answer_shown, recorded_scripts

QUESTION = Question(
    question_id="train-shop-0",
    question_text="Which buyers?",
    database_name="shop",
    gold_sql="SELECT a.name\nFROM orders AS a JOIN buyers b ON a.b = b.id",
    gold_answer=["Ann", "Bo"],
    answer_type="list",
    difficulty="easy",
    tables_involved=["orders", "buyers"],
)
RAN, FAILED = {"exec_ok": 0.02, "step_cost": -0.02}, {"step_cost": -0.02}
PART, RIGHT = {**RAN, "progress": 0.06}, {**RAN, "progress": 0.15}
ROWS = "name\nAnn\nBo\nSteps left: 5"
GOLD = "QUERY: SELECT a.name FROM orders AS a JOIN buyers b ON a.b = b.id"
ANSWER = 'ANSWER: ["Ann", "Bo"]'

Step = tuple[str, dict[str, float], str]  # action, parts of its reward, observation
LOOK: Step = ("DESCRIBE: buyers", RAN, "buyers: 2 rows\nSteps left: 7")
FAIL: Step = ("QUERY: SELECT nam\nFROM buyers", FAILED, "Error: no such column\nSteps left: 6")
FOUND: Step = ("QUERY: SELECT name\nFROM buyers", RIGHT, ROWS)
HALF: Step = ("QUERY: SELECT name FROM buyers LIMIT 1", PART, "name\nAnn\nSteps left: 5")
SAID: Step = ("ANSWER: Ann and Bo", RAN, "")
FAILED_QUERY, FOUND_QUERY = "QUERY: SELECT nam FROM buyers", "QUERY: SELECT name FROM buyers"


def scripts(folder: Path, kind: str, *episodes: tuple[str, list[Step]], **changes: Any) -> Any:
    """Record episodes, each with its outcome and steps, and return the scripts of a kind."""
    lines, seen = [], []
    for outcome, steps in episodes:
        line = {"phase": "train", "step": 0, "question_id": "train-shop-0", "outcome": outcome}
        line |= {"steps": len(steps), "actions": [step[0] for step in steps]}
        lines.append({**line, "parts": [step[1] for step in steps], **changes})
        texts = ["Question: Which buyers?", *(step[2] for step in steps)]
        seen.append({"step": 0, "question_id": "train-shop-0", "observations": texts})
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "episodes.jsonl").write_text(text)
    kept = "".join(json.dumps(line) + "\n" for line in seen)
    (folder / "observations.jsonl.gz").write_bytes(gzip.compress(kept.encode()))
    return recorded_scripts(f"{kind}:x", kind, folder, [QUESTION])


def test_the_two_shortest_successes_are_taught_without_repeats(tmp_path: Path) -> None:
    long, short = [LOOK, LOOK, FAIL, FOUND, SAID], [LOOK, FOUND, SAID]
    played = [("correct", steps) for steps in (long, short, short, [LOOK, HALF, FOUND, SAID])]
    first, second = scripts(tmp_path, "run", *played, ("wrong", [SAID]))
    assert first.actions == ("DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert second.actions == ("DESCRIBE: buyers", HALF[0], FOUND_QUERY, ANSWER)


def test_a_success_whose_query_was_not_recorded_keeps_its_answer(tmp_path: Path) -> None:
    (script,) = scripts(tmp_path, "run", ("correct", [LOOK, HALF, SAID]))
    assert script.actions == ("DESCRIBE: buyers", HALF[0], "ANSWER: Ann and Bo")


def test_an_unanswered_right_query_is_completed(tmp_path: Path) -> None:
    played = [
        ("wrong", [LOOK, FAIL, FOUND, HALF, SAID]),
        ("budget", [LOOK, FOUND]),
        ("correct", [LOOK, FOUND, SAID]),
        ("wrong", [LOOK, HALF, SAID]),
        ("sql_killed", [LOOK, FOUND]),
        ("wrong", [LOOK, ("QUERY: SELECT 1", RIGHT, "name\nAnn\n(first 1 rows; there are more)")]),
    ]
    first, second = scripts(tmp_path, "completed", *played)
    assert first.actions == ("DESCRIBE: buyers", FAILED_QUERY, FOUND_QUERY, ANSWER)
    assert second.actions == ("DESCRIBE: buyers", FOUND_QUERY, ANSWER)


def test_a_failure_is_mended_by_another_episode_of_its_question(tmp_path: Path) -> None:
    failed = ("budget", [FAIL, HALF, FAIL])
    described = ("wrong", [LOOK, FAIL])
    solved = ("wrong", [LOOK, FOUND, HALF])  # found the rows, and did not say them
    first, second = scripts(tmp_path, "recovered", failed, described, solved)
    assert first.actions == (FAILED_QUERY, "DESCRIBE: buyers", FOUND_QUERY, ANSWER)
    assert first.context == 1
    assert second.actions == ("DESCRIBE: buyers", FAILED_QUERY, FOUND_QUERY, ANSWER)
    assert second.context == 2
    assert not scripts(tmp_path, "recovered", failed, ("wrong", [LOOK, HALF]))


def test_a_failure_is_mended_by_the_gold_query(tmp_path: Path) -> None:
    bad_look: Step = ("DESCRIBE: buyer", FAILED, "Error: no such table")
    other: Step = ("QUERY: SELECT b", FAILED, "Error")
    wrong = [("DESCRIBE: Buyers", RAN, ""), bad_look, HALF, HALF, FAIL, other, SAID]
    left_out = [
        ("correct", wrong),
        ("sql_killed", wrong),
        ("wrong", [LOOK, bad_look, SAID]),
        ("wrong", [(GOLD, RIGHT, ROWS), FAIL]),
    ]
    (script,) = scripts(tmp_path, "corrected", ("wrong", wrong), ("wrong", wrong), *left_out)
    begun = ("DESCRIBE: Buyers", "DESCRIBE: buyer", HALF[0], FAILED_QUERY)
    assert script.actions == (*begun, "DESCRIBE: orders", GOLD, ANSWER)
    assert script.context == 4


@pytest.mark.parametrize("kind", RECORDED)
def test_other_questions_are_never_taught(kind: str, tmp_path: Path) -> None:
    played = [("correct", [LOOK, FOUND, SAID]), ("wrong", [LOOK, FOUND]), ("wrong", [FAIL])]
    assert scripts(tmp_path, kind, *played)
    assert not scripts(tmp_path, kind, *played, question_id="eval-shop-0")


@pytest.mark.parametrize(
    ("observation", "answer"),
    [
        ("COUNT(*)\n5\nSteps left: 3", "5"),
        ("name\nAnn\nSteps left: 3\nHint", "Ann"),
        ("a\nNULL", "null"),
        ("a\n5\n007\nNULL\nx | y", None),
        ("a\n5\n007\nNULL\n-2.5", '[5, "007", null, -2.5]'),
        ("a | b\n1 | Zoë\n2 | 1e+20", '[[1, "Zoë"], [2, 1e+20]]'),
        ("a\n(no rows)", None),
        ("a\n1\n(first 1 rows; there are more)", None),
        ("a\nlong…", None),
        ("Error: no such table", None),
    ],
)
def test_the_rows_that_were_read_are_written_as_an_answer(
    observation: str, answer: str | None
) -> None:
    assert answer_shown(observation) == answer
