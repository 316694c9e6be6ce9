"""Properties of the committed databases and questions, beside those that the audit checks."""

from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from data.domains.shipped import DATA_DIR, SHIPPED, Shipped
from data.golds.execute import open_readonly
from shared.dataset import check_databases, database_path, load_splits

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
