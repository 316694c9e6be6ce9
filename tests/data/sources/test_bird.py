"""BIRD's layout becomes a data directory, with its evidence in the questions."""

import json
from pathlib import Path

import pytest

from data.audit import audit
from data.sources.bird import import_bird
from shared.dataset import is_dev_question, load_splits
from shared.errors import DataError
from tests.data.sources.importing import QUESTIONS, make_database, run_import


def make_bird(root: Path, name: str, database: str) -> None:
    """Write one split: `name`.json and `name`_databases/."""
    make_database(root / f"{name}_databases" / database / f"{database}.sqlite")
    rows = [
        {
            "question_id": number,
            "db_id": database,
            "question": text,
            "evidence": "dearest refers to\nMAX(price)" if number == 0 else "",
            "SQL": sql,
            "difficulty": "simple",
        }
        for number, (text, sql) in enumerate(QUESTIONS)
    ]
    (root / f"{name}.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("folders", [("", ""), ("train", "dev_20240627")])
def test_both_splits_are_imported(tmp_path: Path, folders: tuple[str, str]) -> None:
    root = tmp_path / "bird"
    make_bird(root / folders[0], "train", "shop")
    make_bird(root / folders[1], "dev", "store")
    report = import_bird(root, tmp_path / "out")
    assert report.problems == []
    splits = load_splits(tmp_path / "out")
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 6, "eval": 6}
    first = splits["eval"][0]
    assert first.question_text == "How many items are there? Hint: dearest refers to MAX(price)"
    assert first.gold_answer == 4
    assert is_dev_question(first.question_id)
    assert splits["train"][1].question_text == "What does the cap cost?"
    assert {finding.flag for finding in audit(tmp_path / "out").errors} == {"shared-database"}


def test_the_dev_split_alone_is_for_evaluation(tmp_path: Path) -> None:
    make_bird(tmp_path / "bird", "dev", "shop")
    status, text = run_import("bird", tmp_path / "bird", "--out", tmp_path / "out", "--no-evidence")
    assert status == 0
    assert "no training questions, so it is for evaluation and play" in text
    texts = [one.question_text for one in load_splits(tmp_path / "out")["eval"]]
    assert texts[0] == "How many items are there?"


def test_another_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no BIRD data in .*: name the folder of dev\.json"):
        import_bird(tmp_path, tmp_path.parent / "out")
