"""`python -m data audit`: every flag is raised where due, and on none of the shipped data.

Among them, whether a question's text gives its answer away.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from data.audit import ERRORS, NOTES, AuditReport, audit
from data.choose import contains_answer, states_number
from data.golds.check_gold import GoldResult
from shared.errors import DataError, QuestionLoadError
from tests.conftest import make_database, question_row, write_questions
from tests.data.sources.importing import import_spider, run

SPIDER_DIR = os.environ.get("SPIDER_DIR")
SHIPPED = Path(__file__).parents[3] / "data"

FARM = """
CREATE TABLE animal (
    id INTEGER PRIMARY KEY, name TEXT, kind TEXT, legs INTEGER, note TEXT, picture BLOB
);
CREATE TABLE sound (id INTEGER PRIMARY KEY, kind TEXT, sound TEXT);
INSERT INTO animal VALUES
    (1, 'Ida', 'goat', 4, NULL, x'00'), (2, 'Per', 'goat', 4, NULL, NULL),
    (3, 'Una', 'hen', 2, NULL, NULL), (4, 'Max', 'goat', 4, NULL, NULL),
    (5, 'Bo', 'cow', 4, NULL, NULL);
INSERT INTO sound VALUES (1, 'goat', 'bleat'), (2, 'hen', 'cluck'), (3, 'cow', 'moo');
CREATE TABLE day (n INTEGER);
CREATE TABLE weight (kind TEXT, kg TEXT);
INSERT INTO weight VALUES ('goat', '100'), ('hen', '9'), ('cow', '700');
WITH RECURSIVE d(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM d WHERE n < 30)
INSERT INTO day SELECT n FROM d;
"""
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def ask(text: str, sql: str, answer: Any) -> dict[str, Any]:
    nested = isinstance(answer, list) and isinstance(answer[0], list)
    kind = "table" if nested else {int: "integer", str: "string", list: "list"}[type(answer)]
    return question_row("", "farm", text, sql, answer, kind, "easy", "animal")


SOUND = ask("How does the goat sound?", "SELECT sound FROM sound WHERE kind = 'goat'", "bleat")
LEGS = ask("How many legs do all of them have?", "SELECT sum(legs) FROM animal", 18)

# flag -> the question that must raise it, and no other, on the split of its name
FLAGGED: dict[str, dict[str, Any]] = {
    "failing": ask("Which colour?", "SELECT colour FROM animal", "red"),
    "empty": ask("Which snake?", "SELECT name FROM animal WHERE kind = 'snake'", "Kaa"),
    "null": ask("Which note?", "SELECT note FROM animal WHERE id = 1", "x"),
    "tied": ask("Who has most?", "SELECT name FROM animal ORDER BY legs DESC LIMIT 1", "Ida"),
    "order-dependent": ask("Who, by kind?", "SELECT name FROM animal GROUP BY kind", ["Bo"]),
    "undecided": ask("What weighs most?", "SELECT max(kg) FROM weight", "9"),
    "oversize": ask("Which days are there?", "SELECT n FROM day", [1]),
    "runaway": ask("How far can you count?", ENDLESS, 7),
    "unstable": ask("Which picture?", "SELECT picture FROM animal WHERE id = 1", "x"),
    "blank": ask(" ", "SELECT count(*) + 8 FROM animal WHERE kind = 'hen'", 9),
    "stale": ask("Hens?", "SELECT count(*) + 8 FROM animal WHERE kind = 'hen'", 8),
    "guessable-number": ask("What is in row 12 of days?", "SELECT n FROM day WHERE n = 12", 12),
    "guessable-text": ask("Is it moo or low?", "SELECT sound FROM sound WHERE id = 3", "moo"),
    "duplicate": {**SOUND, "gold_sql": "select SOUND from sound where kind='goat'"},
    "near-duplicate": ask("How is a hen's?", "SELECT sound FROM sound WHERE kind = 'hen'", "cluck"),
    "guessable-one": ask("What is the least day?", "SELECT min(n) FROM day", 1),
    "guessable-mode": ask("What is Ida?", "SELECT kind FROM animal WHERE name = 'Ida'", "goat"),
    "null-cells": ask("Whose note?", "SELECT name, note FROM animal WHERE id = 3", [["Una", None]]),
}
ACROSS = ("duplicate", "near-duplicate")  # raised on eval questions
KEPT = {f"kept-{reason}": reason for reason in ("tied", "empty", "null", "undecided", "oversize")}


def write(root: Path, train: list[dict[str, Any]], evaluation: list[dict[str, Any]]) -> Path:
    make_database(root / "databases" / "farm" / "farm.sqlite", FARM)
    for split, questions in (("train", train), ("eval", evaluation)):
        if questions:
            rows = [one | {"question_id": f"{split}-{n}"} for n, one in enumerate(questions)]
            write_questions(root, **{split: rows})
    return root


def flags_of(report: AuditReport) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.question_id, set()).add(finding.flag)
    return found


@pytest.mark.slow
def test_the_shipped_data_is_clean():
    report = audit(SHIPPED)
    assert report.errors == []
    assert report.questions == {"train": 656, "eval, seen": 184, "eval, unseen": 310}
    assert report.databases == 13
    # what is noted is little: an answer of 1, or a column that is mostly one value
    assert {finding.flag for finding in report.findings} == {"guessable-one", "guessable-mode"}
    assert len(report.findings) == 6


@pytest.mark.parametrize("flag", FLAGGED)
def test_each_flag_is_raised_where_due_and_alone(tmp_path, flag):
    split, question = "eval" if flag in ACROSS else "train", FLAGGED[flag]
    questions = {"train": [SOUND, LEGS], "eval": []}
    questions[split].append(question)
    report = audit(write(tmp_path, questions["train"], questions["eval"]))
    assert flags_of(report) == {f"{split}-{len(questions[split]) - 1}": {flag}}
    assert bool(report.errors) is (flag in ERRORS)
    assert report.findings[0].detail


def test_every_flag_is_tested():
    # of several questions: below
    company = {"guessable-constant", "shared-database", "dev-question", "repeated-id"}
    assert set(FLAGGED) | company | set(KEPT) == ERRORS.keys() | NOTES.keys()


@pytest.mark.parametrize("flag", KEPT)
def test_what_an_import_was_to_keep_is_a_note(tmp_path, flag):
    question = dict(FLAGGED[KEPT[flag]])
    if flag in ("kept-empty", "kept-null"):
        empty = flag == "kept-empty"
        question |= {"gold_answer": [] if empty else None}
        question |= {"answer_type": "list" if empty else "string"}
    if flag == "kept-oversize":
        question |= {"gold_answer": list(range(1, 31))}
    report_file = write(tmp_path, [SOUND, LEGS, question], []) / "import_report.json"
    assert flags_of(audit(tmp_path)) == {"train-2": {KEPT[flag]}}
    report_file.write_text(json.dumps({"keep": sorted(KEPT.values())}))
    report = audit(tmp_path)
    assert flags_of(report) == {"train-2": {flag}}
    assert not report.errors
    report_file.write_text(json.dumps({"keep": ["no such reason"]}))
    with pytest.raises(DataError, match="import the data again"):
        audit(tmp_path)


def test_a_constant_that_wins_too_often_is_flagged_in_its_split(tmp_path):
    def counting(number: int, answer: int) -> dict[str, Any]:
        text = f"How many of day number {'x' * (number + 1)}?"
        return ask(text, f"SELECT {answer} + 0 * count(*) + 0 * {number + 100} FROM day", answer)

    train = [counting(number, 77 if number < 3 else 200 + number) for number in range(60)]
    report = audit(write(tmp_path / "a", train, []))
    assert {
        finding.question_id for finding in report.findings if finding.flag == "guessable-constant"
    } == {"train-0", "train-1", "train-2"}
    assert "77 is right for 3 of the 60 questions of train" in report.findings[-1].detail
    # 3 of 80 is below 4 %
    train = [counting(number, 77 if number < 3 else 200 + number) for number in range(80)]
    assert not audit(write(tmp_path / "b", train, [])).errors


@pytest.mark.parametrize(("script", "same"), [(FARM, True), (FARM.replace("moo", "low"), False)])
def test_a_training_database_under_another_name_is_flagged(tmp_path, script, same):
    unseen = {**LEGS, "database_name": "ranch"}
    legs = {**unseen, "question_text": "Legs?", "gold_sql": "SELECT sum(legs) + 0 FROM animal"}
    write(tmp_path, [SOUND], [unseen, legs])
    make_database(tmp_path / "databases" / "ranch" / "ranch.sqlite", script)
    found = audit(tmp_path).findings
    flagged = [("shared-database", f"eval-{n}") for n in (0, 1)]
    assert [(one.flag, one.question_id) for one in found] == (flagged if same else [])


def test_a_dev_question_is_flagged_in_training_alone(tmp_path):
    root = write(tmp_path, [SOUND, LEGS], [])
    path = root / "questions" / "questions_train.json"
    path.write_text(path.read_text().replace("train-1", "spider-dev-0001"))
    assert flags_of(audit(root)) == {"spider-dev-0001": {"dev-question"}}
    path.rename(path.with_name("questions_eval.json"))
    assert not audit(root).errors


def test_an_id_of_two_questions_is_flagged(tmp_path):
    root = write(tmp_path, [SOUND], [LEGS])
    path = root / "questions" / "questions_eval.json"
    path.write_text(path.read_text().replace("eval-0", "train-0"))
    assert flags_of(audit(root)) == {"train-0": {"repeated-id"}}


@pytest.mark.parametrize(
    ("text", "answer", "stated"),
    [
        ("Days over 1,200.5?", 1200.5, True),
        ("The twelve months?", 12, True),
        ("In 2013?", 13, False),
        ("Version 1.12?", 12, False),
        ("Some?", 4, False),
    ],
)
def test_which_numbers_a_question_states(text, answer, stated):
    kind: Any = {int: "integer", float: "float", str: "string"}[type(answer)]
    assert states_number(text, GoldResult(((answer,),), answer, kind)) is stated


def test_the_command_shows_a_table_and_writes_json(tmp_path):
    root, out = (
        write(tmp_path / "data", [SOUND, FLAGGED["empty"]], [FLAGGED["near-duplicate"]]),
        tmp_path / "a.json",
    )
    code, shown = run("audit", root, "--json", out)
    assert code == 1
    assert "error: empty: train-1: no rows" in shown
    assert "2 errors, 0 notes" in shown
    found = json.loads(out.read_text())
    assert found["flags"] == {"empty": 1, "near-duplicate": 1}
    assert {finding["level"] for finding in found["findings"]} == {"error"}
    code, shown = run("audit", write(tmp_path / "clean", [SOUND, FLAGGED["guessable-one"]], []))
    assert code == 0
    assert "note: guessable-one: train-1" in shown
    assert "clean, 1 note: 2 train; 1 database\n" in shown
    assert "26 of 27 checks found nothing" in shown
    assert "guessable-mode" not in shown


def test_what_cannot_be_audited_is_named(tmp_path):
    with pytest.raises(QuestionLoadError, match="no questions_<split>"):
        audit(tmp_path)
    code, shown = run("audit", tmp_path)
    assert code == 1
    assert "error: no questions_<split>.json" in shown
    assert "python -m data import spider" in shown


@pytest.mark.slow
@pytest.mark.skipif(SPIDER_DIR is None, reason="SPIDER_DIR is not set: no copy of Spider to audit")
def test_an_import_of_spider_has_the_known_findings(tmp_path):
    """Its golds are sound and its splits share nothing; some answers can be guessed."""
    import_spider(Path(str(SPIDER_DIR)), tmp_path / "spider")
    report = audit(tmp_path / "spider")
    errors = {finding.flag for finding in report.errors}
    assert errors <= {"guessable-text", "guessable-number", "guessable-constant"}
    assert len(report.errors) < 0.02 * sum(report.questions.values())
    assert set(report.questions) == {"train", "eval, unseen"}
    assert {"null-cells", "guessable-mode"} <= {finding.flag for finding in report.findings}


@pytest.mark.parametrize(
    ("text", "answer", "contained"),
    [
        ("Is it moo or low?", "Moo", True),
        ("Who is José.Vega7?", "jose vega", True),
        ("Which of Rex and Ida is older?", ["Ida", "Rex"], True),
        ("Who wrote the book?", "A book", True),
        ("What is a grade with the code 3?", "A", False),
        ("What is a grade with the code 3?", "Grade A", False),
        ("Who plays in The The?", "The The", True),
        ("Which food has most vitamin A in it?", "Vitamin A", True),
        ("Which state is it in?", "IN", False),
        ("What is the driver's size?", "S", False),
        ("Which sign has the code 3?", "+", False),
        ("Which code has the sign?", 3, False),
    ],
)
def test_an_answer_in_the_text(text, answer, contained):
    assert contains_answer(text, answer) is contained
