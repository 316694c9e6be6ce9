"""`tiny_data`: a data directory with two small databases and ten questions; and helpers."""

import asyncio
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, settings

# before torch is imported: tests run side by side, and a training is one process by default
os.environ.setdefault("OMP_NUM_THREADS", "1")

# no test depends on how fast the machine is
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collections, of which a trainer makes one per run."""
    gc.collect()
    gc.freeze()


def needs_program(name: str, missing: str | None) -> pytest.MarkDecorator:
    """Mark tests that are skipped where a program is missing, which is `missing`'s reason.

    If REQUIRED_PROGRAMS lists the program, as .ci/run sets it, they run and fail instead.
    """
    required = name in os.environ.get("REQUIRED_PROGRAMS", "").split()
    return pytest.mark.skipif(missing is not None and not required, reason=str(missing))


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s"
        await asyncio.sleep(0.005)


def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    asyncio.run(until(condition, timeout_s))


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


SHOP = """
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT, joined_on DATE);
CREATE TABLE products (product_id INTEGER PRIMARY KEY, title TEXT, price REAL);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY,
    customer_id INTEGER REFERENCES customers (customer_id),
    product_id INTEGER REFERENCES products,
    quantity INTEGER,
    note
);
INSERT INTO customers VALUES
    (1, 'Ann', 'Oslo', '2021-03-01'), (2, 'Bob', 'Bergen', '2022-07-15'), (3, 'Zoë', 'Oslo', NULL),
    (4, 'Müller', NULL, '2020-01-31'), (5, 'Ann', 'Tromsø', '2023-11-05');
INSERT INTO products VALUES
    (1, 'lamp', 24.5), (2, 'chair', 80.0), (3, 'desk', 120.25), (4, 'mug', 7.75);
INSERT INTO orders VALUES
    (1, 1, 2, 1, NULL), (2, 1, 4, 3, 'gift'), (3, 2, 1, 2, 'leave it
at the door'), (4, 3, 4, 1, NULL), (5, 5, 3, 1, NULL), (6, 5, 4, 6, 'gift');
"""  # noqa: E501  the schema is in recorded outputs
ZOO = """
CREATE TABLE keepers (keeper_id INTEGER PRIMARY KEY, name TEXT, salary REAL);
CREATE TABLE animals (
    animal_id INTEGER PRIMARY KEY, name TEXT, species TEXT, weight_kg REAL,
    keeper_id INTEGER REFERENCES keepers (keeper_id)
);
INSERT INTO keepers VALUES (1, 'Ida', 31000.5), (2, 'Omar', 28500.0), (3, 'Per', 28500.0);
INSERT INTO animals VALUES
    (1, 'Leo', 'lion', 190.4, 1), (2, 'Nala', 'lion', 130.25, 1), (3, 'Skipper', 'penguin', 4.1, 2),
    (4, 'Kowalski', 'penguin', 3.9, 2), (5, 'Dumbo', 'elephant', 5400.0, NULL);
"""


def question_row(
    question_id: str, db: str, text: str, sql: str, answer: Any, kind: str, level: str, *tables: str
) -> dict[str, Any]:
    return {
        "question_id": question_id,
        "question_text": text,
        "database_name": db,
        "gold_sql": sql,
        "gold_answer": answer,
        "answer_type": kind,
        "difficulty": level,
        "tables_involved": list(tables),
    }


TRAIN = [
    question_row(
        "shop-1", "shop", "How many customers are there?",
        "SELECT count(*) FROM customers",
        5, "integer", "easy", "customers",
    ),
    question_row(
        "shop-2", "shop", "What does the lamp cost?",
        "SELECT price FROM products WHERE title = 'lamp'",
        24.5, "float", "easy", "products",
    ),
    question_row(
        "shop-3", "shop", "Which product is the most expensive?",
        "SELECT title FROM products ORDER BY price DESC LIMIT 1",
        "desk", "string", "easy", "products",
    ),
    question_row(
        "shop-4", "shop", "What are the names of the customers in Oslo?",
        "SELECT name FROM customers WHERE city = 'Oslo'",
        ["Ann", "Zoë"], "list", "medium", "customers",
    ),
    question_row(
        "shop-5", "shop", "How many pieces of each product were ordered, the most ordered first?",
        "SELECT p.title, sum(o.quantity) AS pieces FROM orders o "
        "JOIN products p USING (product_id) GROUP BY p.title ORDER BY pieces DESC, p.title",
        [["mug", 10], ["lamp", 2], ["chair", 1], ["desk", 1]],
        "table", "hard", "orders", "products",
    ),
    question_row(
        "shop-6", "shop", "What is the average price?",
        "SELECT avg(price) FROM products",
        58.125, "float", "medium", "products",
    ),
]  # fmt: skip
EVAL = [
    question_row(
        "shop-7", "shop", "How many orders are gifts?",
        'SELECT count(*) FROM orders WHERE note = "gift"',
        2, "integer", "easy", "orders",
    ),
    question_row(
        "zoo-1", "zoo", "How many lions are there?",
        "SELECT count(*) FROM animals WHERE species = 'lion'",
        2, "integer", "easy", "animals",
    ),
    question_row(
        "zoo-2", "zoo", "Which species are there, and how many animals of each?",
        "SELECT species, count(*) FROM animals GROUP BY species",
        [["elephant", 1], ["lion", 2], ["penguin", 2]], "table", "medium", "animals",
    ),
    question_row(
        "zoo-3", "zoo", "Who earns 28500?",
        "SELECT name FROM keepers WHERE salary = 28500",
        ["Omar", "Per"], "list", "easy", "keepers",
    ),
]  # fmt: skip


def make_database(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(script)
    connection.close()
    return path


def write_questions(root: Path, **splits: list[dict[str, Any]]) -> None:
    (root / "questions").mkdir(parents=True, exist_ok=True)
    for split, questions in splits.items():
        path = root / "questions" / f"questions_{split}.json"
        path.write_text(json.dumps(questions, ensure_ascii=False, indent=1), encoding="utf-8")


def write_data(root: Path) -> Path:
    make_database(root / "databases" / "shop" / "shop.sqlite", SHOP)
    make_database(root / "databases" / "zoo" / "zoo.sqlite", ZOO)
    write_questions(root, train=TRAIN, eval=EVAL)
    return root


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only data directory: databases `shop` and `zoo`, 6 training and 4 eval questions."""
    return write_data(tmp_path_factory.mktemp("tiny"))
