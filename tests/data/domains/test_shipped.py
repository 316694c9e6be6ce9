"""Properties of the committed databases and questions, beside those that the audit checks, and that
`python -m data build` makes them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from data.domains.shipped import DATA_DIR, SHIPPED, Shipped
from data.golds.execute import open_readonly
from shared.dataset import check_databases, database_path, load_splits
from tests.data.sources.importing import files_of

SPLITS = load_splits(DATA_DIR)
TRAIN, EVAL = SPLITS["train"], SPLITS["eval"]
UNSEEN_IDS = {shipped.domain.db_id for shipped in SHIPPED if shipped.unseen}
SEEN = [question for question in EVAL if question.database_name not in UNSEEN_IDS]
all_databases = pytest.mark.parametrize(
    "shipped", SHIPPED, ids=[shipped.domain.db_id for shipped in SHIPPED]
)


@pytest.fixture
def connection(shipped: Shipped) -> Iterator[apsw.Connection]:
    opened = open_readonly(database_path(DATA_DIR, shipped.domain.db_id))
    yield opened
    opened.close()


def scalar(connection: apsw.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()[0][0]


def test_no_training_question_touches_an_unseen_database() -> None:
    assert not UNSEEN_IDS & {question.database_name for question in TRAIN}
    assert {question.database_name for question in SEEN} == {
        question.database_name for question in TRAIN
    }
    check_databases(DATA_DIR, TRAIN + EVAL)


@all_databases
def test_tables_have_the_promised_shape(shipped: Shipped, connection: apsw.Connection) -> None:
    assert 3 <= len(shipped.domain.tables) <= 7
    assert scalar(connection, "PRAGMA integrity_check") == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for table in shipped.domain.tables:
        assert 30 <= scalar(connection, f"SELECT COUNT(*) FROM {table.name}") <= 5000
    assert any(column.references for table in shipped.domain.tables for column in table.columns)


def run_build(out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "data", "build", "--out", str(out)],
        cwd=DATA_DIR.parent,
        env={**os.environ, "PYTHONHASHSEED": "31337"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_committed_data_is_what_the_code_builds(tmp_path: Path) -> None:
    done = run_build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for folder in ("databases", "questions"):
        built, committed = files_of(tmp_path / folder), files_of(DATA_DIR / folder)
        assert built.keys() == committed.keys()
        assert [name for name in built if built[name] != committed[name]] == []


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    done = run_build(blocker / "data")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr
