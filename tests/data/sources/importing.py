"""What the tests of imports share: the command, and a small database of one's own."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from data.commands import app
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


def run_import(*args: object) -> tuple[int, str]:
    """Return the exit status and the output of `python -m data import ARGS`."""
    words = ["import", *map(str, args)]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


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
