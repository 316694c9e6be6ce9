"""Reading a data directory, and the errors where it can't be read.

Paths below data/ are found in the working directory first, then beside the packages.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shared.dataset import (
    Question,
    check_databases,
    data_digest,
    data_directory,
    database_path,
    load_questions,
    load_splits,
    questions_path,
)
from shared.errors import DatabaseLoadError, QuestionLoadError
from shared.shipped import INSTALLED, shipped_path
from tests.conftest import question_row


def row(**changes: Any) -> dict[str, Any]:
    asked = ("q1", "concert", "How many singers?", "SELECT count(*) FROM singer")
    return question_row(*asked, 3, "integer", "easy", "singer") | changes


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_questions_are_read_by_split(tmp_path):
    table = row(question_id="q2", gold_answer=[["Ada", None]], answer_type="table", extra=1)
    write(questions_path(tmp_path, "train"), [row(), table])
    write(questions_path(tmp_path, "eval"), [row(question_id="q3")])
    splits = load_splits(tmp_path)
    golds = {split: [(q.question_id, q.gold_answer) for q in splits[split]] for split in splits}
    assert golds == {"eval": [("q3", 3)], "train": [("q1", 3), ("q2", [["Ada", None]])]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "top level"),
        ({}, "top level"),
        ([], "has no question"),
        ([row(), row(question_id="q2", answer_type="date")], "1.answer_type"),
        ([{"question_id": "q1"}], "0.question_text"),
    ],
)
def test_a_bad_questions_file_is_named_with_its_first_error(tmp_path, content, words):
    path = write(tmp_path / "q.json", content)
    with pytest.raises(QuestionLoadError) as caught:
        load_questions(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_a_missing_file_is_named_with_a_remedy(tmp_path):
    for load in (load_questions, load_splits):
        with pytest.raises(QuestionLoadError, match=r"none.*python -m data build.*--data"):
            load(tmp_path / "none")
    with pytest.raises(QuestionLoadError, match="there is no folder"):
        load_splits(tmp_path / "none")
    questions = load_questions(write(tmp_path / "q.json", [row()]))
    with pytest.raises(DatabaseLoadError, match=r"concert\.sqlite.*python -m data build"):
        check_databases(tmp_path, questions)
    write(database_path(tmp_path, "concert"), "")
    check_databases(tmp_path, questions)


def test_the_digest_depends_on_content_and_names_only(tmp_path):
    def make(name: str, gold: int = 3, database: str = "bytes", db_id: str = "concert") -> str:
        write(questions_path(tmp_path / name, "train"), [row(gold_answer=gold)])
        write(database_path(tmp_path / name, db_id), database)
        write(tmp_path / name / "README", name)
        return data_digest(tmp_path / name)

    first = make("a")
    assert first == make("elsewhere")
    others = {make("b", gold=4), make("c", database="other"), make("d", db_id="renamed")}
    assert len({first, *others}) == 4


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        (3, "3"),
        ("Zoë", "Zoë"),
        (["a", "é"], '["a", "é"]'),
        ([["Ada", None], ["Bo", 2.5]], '[["Ada", null], ["Bo", 2.5]]'),
    ],
)
def test_the_answers_text_is_what_an_agent_writes(gold, text):
    assert Question(**row(gold_answer=gold)).answer_text == text


TRAIN = "data/questions/questions_train.json"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_shipped_files_are_found_from_any_folder(elsewhere):
    assert shipped_path("data/models/sqlenv-tiny") == INSTALLED / "data/models/sqlenv-tiny"
    assert load_questions(Path(TRAIN)) == load_questions(INSTALLED / TRAIN)
    splits = load_splits(Path("data"))
    assert splits.keys() == {"train", "eval"}
    check_databases(Path("data"), splits["eval"])
    assert data_digest(Path("data")) == data_digest(INSTALLED / "data")


def test_what_exists_in_the_working_directory_wins(elsewhere):
    (elsewhere / "data/questions").mkdir(parents=True)
    assert shipped_path("data/questions") == Path("data/questions")
    with pytest.raises(QuestionLoadError, match=r"no questions_<split>\.json in data/questions;"):
        load_splits(Path("data"))


def test_in_a_checkout_paths_stay_as_they_are(monkeypatch):
    monkeypatch.chdir(INSTALLED)
    assert shipped_path(TRAIN) == Path(TRAIN)
    assert data_directory("data") == Path("data")


@pytest.mark.parametrize("name", ["data/nowhere", "shared", "nowhere", "./shared", "/data/x"])
def test_other_paths_that_do_not_exist_are_not_replaced(elsewhere, name):
    assert str(shipped_path(name)) == os.path.normpath(name)
    with pytest.raises(QuestionLoadError, match="questions"):
        load_splits(Path(name))
