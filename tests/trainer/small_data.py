"""A small data directory, made in milliseconds: three databases like a shop's, with easy and
medium questions."""

import sqlite3
from pathlib import Path
from typing import Any

from tests.conftest import question_row, write_questions

TRAIN_DATABASES, UNSEEN_DATABASE = ("shop", "club"), "farm"
WORDS = {"shop": ("orders", "buyer"), "club": ("members", "name"), "farm": ("animals", "kind")}


def make_data(data_dir: Path, questions: int = 6) -> Path:
    """Write `questions` per database: on `shop` and `club` for training, and others on all three
    for measuring."""
    for database, (table, text) in WORDS.items():
        path = data_dir / "databases" / database / f"{database}.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path)
        connection.execute(
            f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {text} TEXT, price REAL)"
        )
        rows = [(f"{text} {number % 7}", number * 1.5) for number in range(1, 41)]
        connection.executemany(f"INSERT INTO {table} ({text}, price) VALUES (?, ?)", rows)
        connection.commit()
        connection.close()
    numbers = range(questions)
    write_questions(
        data_dir,
        train=[_question("train", name, number) for name in TRAIN_DATABASES for number in numbers],
        eval=[_question("eval", name, number) for name in WORDS for number in numbers],
    )
    return data_dir


def _question(split: str, database: str, number: int) -> dict[str, Any]:
    table, _ = WORDS[database]
    bound = number + (0 if split == "train" else 20)
    return question_row(
        f"{split}-{database}-{number}", database, f"How many {table} cost more than {bound * 1.5}?",
        f"SELECT COUNT(*) FROM {table} WHERE price > {bound * 1.5}",
        40 - bound, "integer", ("easy", "medium", "hard")[number % 3], table,
    ) | {"form": "count_compare"}  # fmt: skip
