"""The questions that colleagues would ask: each gold runs, and has one answer."""

import json
from pathlib import Path

import pytest

from shared.dataset import load_questions
from tests.data.ask.databases import PARCELS, QUESTIONS, make
from tests.data.sources.importing import run_import

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make(tmp_path_factory.mktemp("ask"))


def test_every_gold_is_kept_by_the_import(databases, tmp_path):
    """The import drops what fails, is empty, tied, undecided, unstable or too large."""
    given = [json.loads(line) for line in QUESTIONS.read_text(encoding="utf-8").splitlines()]
    assert len(given) == 40
    asked = ("--eval-questions", QUESTIONS, "--out", tmp_path / "data")
    status, text = run_import("sqlite", *databases, *asked)
    assert status == 0, text
    kept = load_questions(tmp_path / "data/questions/questions_eval.json")
    assert [one.question_text for one in kept] == [one["question"] for one in given]
    assert {one.database_name for one in kept} == {"clinic", "fair", "parcels"}
    assert PARCELS == 200_000


def test_the_databases_are_the_same_each_time(databases, tmp_path):
    assert [path.read_bytes() for path in make(tmp_path)] == [
        path.read_bytes() for path in databases
    ]
