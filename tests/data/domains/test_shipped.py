"""Properties of the committed databases and questions, beside those that the audit checks."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from data.build import DATA_DIR
from data.choose import tables_of
from data.domains.shipped import SHIPPED, Shipped
from data.domains.spec import Kind
from data.golds.execute import open_readonly
from shared.dataset import Question, check_databases, database_path, load_splits

SPLITS = load_splits(DATA_DIR)
TRAIN, EVAL = SPLITS["train"], SPLITS["eval"]
UNSEEN_IDS = {shipped.domain.db_id for shipped in SHIPPED if shipped.unseen}
UNSEEN = [question for question in EVAL if question.database_name in UNSEEN_IDS]
SEEN = [question for question in EVAL if question.database_name not in UNSEEN_IDS]
BY_ID = {shipped.domain.db_id: shipped for shipped in SHIPPED}
all_databases = pytest.mark.parametrize(
    "shipped", SHIPPED, ids=[shipped.domain.db_id for shipped in SHIPPED]
)
all_splits = pytest.mark.parametrize(
    "questions", [TRAIN, EVAL, SEEN, UNSEEN], ids=["train", "eval", "seen", "unseen"]
)


@pytest.fixture
def connection(shipped: Shipped) -> Iterator[apsw.Connection]:
    opened = open_readonly(database_path(DATA_DIR, shipped.domain.db_id))
    yield opened
    opened.close()


def scalar(connection: apsw.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()[0][0]


def test_there_are_enough_questions_and_databases() -> None:
    assert len(SHIPPED) >= 12
    assert len(UNSEEN_IDS) >= 4
    assert len(TRAIN) >= 600
    assert len(EVAL) >= 450
    assert sum(question.difficulty != "hard" for question in UNSEEN) >= 220
    for questions in (TRAIN, SEEN, UNSEEN):
        assert {question.difficulty for question in questions} == {"easy", "medium", "hard"}
    check_databases(DATA_DIR, TRAIN + EVAL)


def test_no_training_question_touches_an_unseen_database() -> None:
    assert not UNSEEN_IDS & {question.database_name for question in TRAIN}
    assert {question.database_name for question in SEEN} == {
        question.database_name for question in TRAIN
    }


def test_the_repository_stays_small() -> None:
    sizes = [database_path(DATA_DIR, db_id).stat().st_size for db_id in BY_ID]
    assert sum(sizes) / len(sizes) < 400_000
    assert (
        sum(path.stat().st_size for path in (DATA_DIR / "questions").iterdir()) + sum(sizes)
        < 6_000_000
    )


@all_databases
def test_tables_have_the_promised_shape(shipped: Shipped, connection: apsw.Connection) -> None:
    assert 3 <= len(shipped.domain.tables) <= 7
    assert scalar(connection, "PRAGMA integrity_check") == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for table in shipped.domain.tables:
        assert 30 <= scalar(connection, f"SELECT COUNT(*) FROM {table.name}") <= 5000
    assert any(column.references for table in shipped.domain.tables for column in table.columns)


@all_databases
def test_contents_are_as_noisy_as_real_ones(shipped: Shipped, connection: apsw.Connection) -> None:
    cells = [
        cell
        for table in shipped.domain.tables
        for row in connection.execute(f"SELECT * FROM {table.name}")
        for cell in row
    ]
    texts = [cell for cell in cells if isinstance(cell, str)]
    assert 0.002 < cells.count(None) / len(cells) < 0.2
    assert sum(not text.isascii() for text in texts) >= 10
    childless = repeated = 0
    for table in shipped.domain.tables:
        for column in table.columns:
            if column.references is not None:
                key = shipped.domain.table(column.references).key.name
                childless += scalar(
                    connection,
                    f"SELECT COUNT(*) FROM {column.references} WHERE {key} NOT IN "
                    f"(SELECT {column.name} FROM {table.name} WHERE {column.name} IS NOT NULL)",
                )
            elif column.kind in (Kind.NAME, Kind.REAL, Kind.DATE):
                repeats = f"COUNT({column.name}) - COUNT(DISTINCT {column.name})"
                repeated += scalar(connection, f"SELECT {repeats} FROM {table.name}")
    assert childless > 0
    assert repeated > 0


def words(name: str) -> set[str]:
    return {
        word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name.replace("_", " "))
    }


@all_databases
def test_phrases_share_a_word_with_what_they_name(shipped: Shipped) -> None:
    for table in shipped.domain.tables:
        stem = min(words(table.name) & {*words(table.singular), *words(table.plural)}, default=None)
        assert stem is not None, table.name
        for column in table.columns:
            if column.kind not in (Kind.KEY, Kind.REF):
                for phrase in column.wordings:
                    assert words(phrase) & words(column.name), (table.name, column.name, phrase)


@all_databases
def test_tables_involved_are_those_that_the_gold_reads(shipped: Shipped) -> None:
    for question in TRAIN + EVAL:
        if question.database_name == shipped.domain.db_id:
            assert sorted(question.tables_involved) == sorted(
                tables_of(shipped.domain, question.gold_sql)
            )


@all_splits
def test_answers_are_of_every_type(questions: list[Question]) -> None:
    types = Counter(question.answer_type for question in questions)
    assert set(types) == {"integer", "float", "string", "list", "table"}
    assert types["integer"] < 0.6 * len(questions)
    assert min(types.values()) >= 0.03 * len(questions)


def test_each_database_is_asked_about_evenly() -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for split, questions in SPLITS.items():
        for question in questions:
            counts[split][question.database_name] += 1
    assert max(counts["train"].values()) <= 1.25 * min(counts["train"].values())
    for tables in (BY_ID[db_id].domain.tables for db_id in BY_ID):
        names = {table.name for table in tables}
        asked = {
            name
            for question in TRAIN + EVAL
            for name in question.tables_involved
            if set(question.tables_involved) <= names
        }
        assert asked == names


@all_splits
def test_texts_are_whole_sentences_in_varied_words(questions: list[Question]) -> None:
    for question in questions:
        text = question.question_text
        assert text[0].isupper() or not text[0].isascii()
        assert text.endswith(("?", ".")), text
        assert "  " not in text
        assert "{" not in text
    openings = Counter(" ".join(question.question_text.split()[:2]) for question in questions)
    assert len(openings) >= 20
    assert openings.most_common(1)[0][1] < 0.35 * len(questions)


def test_hard_questions_need_more_than_one_step() -> None:
    hard = [question for question in TRAIN + EVAL if question.difficulty == "hard"]
    joins = sum(len(question.tables_involved) >= 3 for question in hard)
    assert len(hard) >= 130
    assert joins >= 35
    for pattern in (
        r"HAVING",
        r"NOT EXISTS|NOT IN",
        r"OVER \(",
        r"WITH ",
        r"julianday|strftime",
        r"EXCEPT|INTERSECT",
    ):
        assert sum(bool(re.search(pattern, question.gold_sql)) for question in hard) >= 3, pattern
