"""Rows with equal sort keys may come in any order, and any of them may fill the last place."""

from collections.abc import Iterator
from typing import Any

import apsw
import pytest

from env_server.questions import QuestionBank
from env_server.sql import SqlJob, SqlResult
from env_server.sql.run import SqlRunner
from env_server.verifier import Gold, judge_answer
from env_server.verifier.gold import Block, find_ties
from shared.dataset import Question
from shared.models import Outcome
from tests.conftest import make_database, question_row
from tests.env_server.in_process import LocalEnvironment

PEOPLE = """
CREATE TABLE people (name TEXT, age INTEGER, city TEXT);
INSERT INTO people VALUES
    ('Ann', 30, 'Oslo'), ('Bob', 30, 'Bergen'), ('Cy', 20, 'Oslo'), ('Di', 30, 'Oslo'),
    ('Ed', 40, NULL);
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.execute(PEOPLE)
    yield connection
    connection.close()


def gold_of(people: apsw.Connection, sql: str) -> Gold:
    rows = people.execute(sql).fetchall()
    kind = "table" if len(rows[0]) > 1 else "list" if len(rows) > 1 else "string"
    answer: Any = {
        "table": list(map(list, rows)),
        "list": [row[0] for row in rows],
        "string": rows[0][0],
    }[kind]
    gold = Gold.of(answer, kind, sql)  # type: ignore[arg-type]
    return gold if gold.ties is None else gold.with_ties(people.execute(gold.ties.sql).fetchall())


@pytest.mark.parametrize(
    ("sql", "right", "wrong"),
    [
        ("SELECT name FROM people ORDER BY age",  # a hidden key
         ["Cy, Ann, Bob, Di, Ed", "Cy, Di, Bob, Ann, Ed"],
         ["Ann, Cy, Bob, Di, Ed", "Cy, Ann, Ann, Di, Ed", "Ed, Di, Bob, Ann, Cy"]),
        ("SELECT name, age AS years FROM people ORDER BY years DESC, name LIMIT 2",  # no tie
         ["Ed | 40\nAnn | 30"], ["Ed | 40\nBob | 30", "Ann | 30\nEd | 40"]),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 1", ["Ed"], ["Ann", "Cy"]),
        ("SELECT name FROM people WHERE age < 40 ORDER BY age DESC LIMIT 1",
         ["Ann", "Bob", "Di"], ["Cy", "Ed", "Ann, Bob"]),
        ("SELECT name FROM people ORDER BY age DESC LIMIT 3",
         ["Ed, Ann, Bob", "Ed, Di, Bob", "Ed, Bob, Di"],
         ["Ed, Ann, Ann", "Ed, Ann, Cy", "Ann, Ed, Bob", "Ed, Ann, Bob, Di"]),
        # two of three equals, whichever are left out
        ("SELECT name FROM people ORDER BY age DESC LIMIT 2 OFFSET 2",
         ["Ann, Bob", "Di, Ann", "Bob, Di"], ["Ed, Ann", "Ann, Cy", "Ann, Ann"]),
        ("SELECT name FROM people LIMIT 2", ["Ann, Bob", "Ed, Cy"],
         ["Ann, Ann", "Ann", "Ann, Fay"]),
        ("SELECT city, count(*) FROM people GROUP BY city ORDER BY count(*) DESC",
         ["Oslo | 3\nBergen | 1\nNULL | 1", "Oslo | 3\nNULL | 1\nBergen | 1"],
         ["Bergen | 1\nOslo | 3\nNULL | 1"]),
        ("SELECT * FROM people ORDER BY 2 LIMIT 2",
         ["Cy | 20 | Oslo\nAnn | 30 | Oslo", "Cy | 20 | Oslo\nBob | 30 | Bergen"],
         ["Ann | 30 | Oslo\nCy | 20 | Oslo"]),
        ("SELECT name FROM people WHERE age > 35 UNION SELECT city FROM people WHERE age < 25 "
         "ORDER BY name",
         ["Ed, Oslo"], ["Oslo, Ed"]),
        ("SELECT age FROM people ORDER BY age DESC LIMIT 3", ["40, 30, 30"],
         ["30, 40, 30", "40, 30, 20"]),
        ("SELECT DISTINCT city FROM people WHERE city NOT NULL ORDER BY city", ["Bergen, Oslo"],
         ["Oslo, Bergen"]),
        ("WITH p AS (SELECT * FROM people) SELECT name FROM p ORDER BY age * 2 LIMIT 2",
         ["Cy, Bob"], ["Bob, Cy", "Cy, Ed"]),
        ("SELECT name, age * 2 AS n FROM people ORDER BY age % 20, name LIMIT 2",
         ["Cy | 40\nEd | 80"], ["Ed | 80\nCy | 40"]),
    ],
)  # fmt: skip
def test_what_ties_leave_open(people, sql, right, wrong):
    gold = gold_of(people, sql)
    assert gold.ties is None
    assert {text: judge_answer(text, gold) for text in right} == dict.fromkeys(right, True)
    assert {text: judge_answer(text, gold) for text in wrong} == dict.fromkeys(wrong, False)


@pytest.mark.parametrize(
    "sql",
    [
        # a name may have several ages
        "SELECT DISTINCT name FROM people ORDER BY age",
        "SELECT name FROM people UNION SELECT city FROM people ORDER BY 1 COLLATE NOCASE || 'x'",
        "SELECT name FROM people ORDER BY age !! name",
        # the table's column: it takes precedence
        "SELECT name, -age AS city FROM people ORDER BY city || 'x'",
        # the table may have a column n
        "SELECT name, -age AS n FROM people ORDER BY n + 1",
        "SELECT name FROM people ORDER BY age LIMIT (SELECT 2)",
        "SELECT name FROM people WHERE age = (SELECT age FROM people ORDER BY age LIMIT 1)",
        "SELECT name FROM people",
    ],
)
def test_what_can_not_be_told_has_no_query(sql):
    assert find_ties(sql) is None


def test_without_known_ties_the_golds_own_order_counts():
    gold = Gold.of(["Cy", "Ann", "Bob"], "list", "SELECT name FROM people ORDER BY age")
    assert gold.ties is not None
    # failed; short; other data
    for rows in ([], [("Cy", 20), ("Ann", 30)], [("Ann", 20), ("Cy", 30), ("Bob", 30)]):
        settled = gold.with_ties(rows)
        assert judge_answer("Cy, Ann, Bob", settled)
        assert not judge_answer("Cy, Bob, Ann", settled)
    assert judge_answer("Cy, Bob, Ann", gold.with_ties([("Cy", 20), ("Ann", 30), ("Bob", 30)]))


def test_visible_keys_need_no_query():
    gold = Gold.of([["a", 2], ["b", 1], ["c", 1]], "table", "SELECT x, y FROM t ORDER BY y DESC")
    assert gold.ties is None
    assert gold.blocks == (Block(1, (("a", 2),)), Block(2, (("b", 1), ("c", 1))))


# -- in an episode

TIED = "SELECT name FROM people WHERE age < 40 ORDER BY age DESC LIMIT 2"


class Limited(SqlRunner):
    """Fails the statement that looks for ties."""

    def run(self, job: SqlJob) -> SqlResult:
        if "sort_key" in job.sql:
            return SqlResult(error="too much work", error_code="sql_budget")
        return super().run(job)


@pytest.mark.parametrize(
    ("runner", "right"),
    [(SqlRunner, {"Ann, Bob", "Di, Bob"}), (Limited, {"Ann, Bob"})],
    ids=["ties are known", "where they can't be seen the gold's order counts"],
)
def test_an_episode_takes_every_answer_that_a_tie_leaves(tmp_path, runner, right):
    make_database(tmp_path / "databases" / "p" / "p.sqlite", PEOPLE)
    asked = ("tied", "p", "Which two of the under-forties are the oldest?", TIED)
    question = Question(**question_row(*asked, ["Ann", "Bob"], "list", "easy", "people"))
    with runner() as executor:
        env = LocalEnvironment(QuestionBank(tmp_path, {"train": [question]}), executor)
        for answer in ("Ann, Bob", "Di, Bob", "Cy, Ann", "Ann, Ann", "Ann, Bob, Di"):
            env.reset(question_id="tied")
            outcome = env.step(f"ANSWER: {answer}").info.outcome
            assert outcome == (Outcome.CORRECT if answer in right else Outcome.WRONG), answer
