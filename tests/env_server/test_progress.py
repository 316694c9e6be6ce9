"""The progress of a QUERY whose rows outnumber the gold's, in whole episodes."""

import json
from collections.abc import Iterator

import pytest

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql.run import SqlRunner
from tests.conftest import make_database

NAMES = [f"name {number}" for number in range(60)]
LENGTHS = (3, 19, 20, 25)  # of golds; 20 rows of a result are shown


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLEnvironment]:
    """Questions whose golds are the first 3, 19, 20 and 25 of 60 names."""
    root = tmp_path_factory.mktemp("names")
    values = ", ".join(f"('{name}')" for name in NAMES)
    script = f"CREATE TABLE names (name TEXT); INSERT INTO names VALUES {values};"
    make_database(root / "databases" / "names" / "names.sqlite", script)
    questions = [
        {
            "question_id": f"first-{length}",
            "question_text": f"Which are the first {length} names?",
            "database_name": "names",
            "gold_sql": f"SELECT name FROM names LIMIT {length}",
            "gold_answer": NAMES[:length],
            "answer_type": "list",
            "difficulty": "easy",
            "tables_involved": ["names"],
        }
        for length in LENGTHS
    ]
    (root / "questions").mkdir()
    for split, rows in (("train", questions[1:]), ("eval", questions[:1])):
        path = root / "questions" / f"questions_{split}.json"
        path.write_text(json.dumps(rows), encoding="utf-8")
    with SqlRunner() as runner:
        yield SQLEnvironment(QuestionBank.load(root), runner)


def progress(env: SQLEnvironment, gold: int, rows: int) -> float:
    env.reset(question_id=f"first-{gold}")
    return env.step(f"QUERY: SELECT name FROM names LIMIT {rows}").info.ledger.potential


@pytest.mark.parametrize("gold", LENGTHS)
def test_a_query_longer_than_the_gold_never_looks_as_long(env: SQLEnvironment, gold: int) -> None:
    """Without numbers in the gold, cardinality counts a third and overlap two thirds."""
    assert progress(env, gold, gold) == 1.0
    assert progress(env, gold, gold + 1) == round(gold / (gold + 1), 4)
    # of a result that is cut, only the cells that are compared count
    compared = max(20, gold + 1)
    for rows in (compared + 1, compared + 9):
        assert progress(env, gold, rows) == pytest.approx(2 / 3 * gold / compared, abs=1e-4)
