"""Paths below data/ are found in the working directory first, then beside the packages."""

import os
from pathlib import Path

import pytest

from shared.dataset import check_databases, data_digest, data_directory, load_questions, load_splits
from shared.errors import QuestionLoadError
from shared.shipped import INSTALLED, shipped_path

TRAIN = "data/questions/questions_train.json"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_shipped_files_are_found_from_any_folder(elsewhere: Path) -> None:
    assert shipped_path("data/models/sqlenv-tiny") == INSTALLED / "data/models/sqlenv-tiny"
    assert load_questions(Path(TRAIN)) == load_questions(INSTALLED / TRAIN)
    splits = load_splits(Path("data"))
    assert splits.keys() == {"train", "eval"}
    check_databases(Path("data"), splits["eval"])
    assert data_digest(Path("data")) == data_digest(INSTALLED / "data")


def test_what_exists_in_the_working_directory_wins(elsewhere: Path) -> None:
    (elsewhere / "data/questions").mkdir(parents=True)
    assert shipped_path("data/questions") == Path("data/questions")
    with pytest.raises(QuestionLoadError, match=r"no questions_<split>\.json in data/questions;"):
        load_splits(Path("data"))


def test_in_a_checkout_paths_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(INSTALLED)
    assert shipped_path(TRAIN) == Path(TRAIN)
    assert data_directory("data") == Path("data")


@pytest.mark.parametrize("name", ["data/nowhere", "shared", "nowhere", "./shared", "/data/x"])
def test_other_paths_that_do_not_exist_are_not_replaced(elsewhere: Path, name: str) -> None:
    assert str(shipped_path(name)) == os.path.normpath(name)
    with pytest.raises(QuestionLoadError, match="questions"):
        load_splits(Path(name))
