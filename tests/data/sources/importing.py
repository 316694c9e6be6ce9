"""What the tests of imports share: the command, small databases, and Spider's layout."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
from typer.testing import CliRunner

from data.commands import app
from data.sources.import_source import import_source
from data.sources.report import ImportReport
from data.sources.spider import read_spider
from shared.dataset import Question, load_splits
from tests import conftest

SHOP = """
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
INSERT INTO item VALUES (1, 'pen', 9.5), (2, 'cup', 9.5), (3, 'cap', 1.0), (4, 'jug', 12.0);
"""
QUESTIONS = [
    ("How many items are there?", "SELECT count(*) FROM item"),
    ("What does the cap cost?", "SELECT price FROM item WHERE name = 'cap';"),
    ("What does the jug cost?", "SELECT price FROM item WHERE name = 'jug'"),
    ("What is the mean price?", "SELECT avg(price) FROM item"),
    ("Which items cost less than 10?", "SELECT name FROM item WHERE price < 10"),
    ("Give the highest id.", "SELECT max(id) FROM item"),
]


def import_spider(folder: Path, out: Path, **how: Any) -> ImportReport:
    return import_source(read_spider(folder), out, **how)


def run(*words: object) -> tuple[int, str]:
    """Return the exit status and the output of `python -m data WORDS`."""
    result = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def run_import(*args: object) -> tuple[int, str]:
    return run("import", *args)


def imported(*args: object) -> str:
    status, text = run_import(*args)
    assert status == 0, text
    return text


def refused(*args: object) -> str:
    status, text = run_import(*args)
    assert (status, text.count("\n")) == (1, 1), text
    return text


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(sql).fetchall()


def kept_questions(folder: Path) -> dict[str, Question]:
    """Return the questions of a data directory by their texts."""
    return {one.question_text: one for many in load_splits(folder).values() for one in many}


def make_database(path: Path, script: str = SHOP) -> Path:
    return conftest.make_database(path, script)


def write_questions(path: Path, rows: Any = QUESTIONS, **more: str) -> Path:
    """Write pairs of question and SQL as JSON lines; `more` are further keys of each."""
    lines = [json.dumps({"question": text, "sql": sql, **more}) for text, sql in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder with their content."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def row(database: str, question: Any, query: str) -> dict[str, Any]:
    return {"db_id": database, "question": question, "query": query}


TRAIN = [
    row("shop", "How many items are there?", "SELECT count(*) FROM item"),
    row("shop", "Count the items.", "SELECT count(*) FROM item"),
    row("shop", "Which item costs most?", "SELECT name FROM item ORDER BY price DESC LIMIT 1"),
    row("shop", "Items over 100?", "SELECT name FROM item WHERE price > 100"),
]
JOINED = (
    "SELECT T1.name FROM ANIMAL AS T1 JOIN cage AS T2 ON T1.cage_id = T2.id "
    "WHERE T2.wing = 'north' ;"
)
DEV = [
    row("zoo", "Names of animals in cages of the north wing?", JOINED),
    row("zoo", "All ticks?", "SELECT n FROM tick"),
    row("zoo", "What is the sound?", "SELECT sound FROM animal"),
    row("zoo", "The name of animal 2?", "SELECT name FROM animal WHERE id = 2"),
]
DATABASES = {
    "shop": """CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, price REAL);
        INSERT INTO item VALUES (1, 'pen', 9.5), (2, 'cup', 9.5), (3, 'cap', 1.0);""",
    "zoo": """CREATE TABLE Cage (id INTEGER PRIMARY KEY, wing TEXT);
        CREATE TABLE Animal (id INTEGER PRIMARY KEY, name TEXT,
                            cage_id INTEGER REFERENCES Cage(id), sound TEXT);
        INSERT INTO Cage VALUES (1, 'north'), (2, 'south');
        INSERT INTO Animal VALUES (1, 'Léo', 1, NULL), (2, 'Mia', 1, NULL),
                                 (3, CAST(x'41ff' AS TEXT), 2, NULL);
        CREATE TABLE tick (n INTEGER);
        WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 21)
        INSERT INTO tick SELECT n FROM c;""",
}


def make_spider_database(root: Path, name: str, script: str) -> Path:
    return make_database(root / "database" / name / f"{name}.sqlite", script)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def make_spider(root: Path) -> Path:
    """Write two databases, 4 training questions (2 usable) and 4 dev questions (2 usable)."""
    root.mkdir(parents=True)
    for name, script in DATABASES.items():
        make_spider_database(root, name, script)
    write_json(root / "train_spider.json", TRAIN)
    write_json(root / "dev.json", DEV)
    return root
