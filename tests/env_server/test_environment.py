"""One episode in process: observations, rewards, ends, and that a replay gives the same bytes."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql import JobKind, SqlJob, SqlResult, drive_async
from env_server.sql.pool import SqlPool
from env_server.sql.run import SqlRunner
from shared.actions import ActionType, SQLAction
from shared.errors import Conflict, DatabaseLoadError, NotReady
from shared.models import Outcome
from trainer.rollout.generators.policies import read_schema

EPISODE = [
    "DESCRIBE: orders",
    "SAMPLE: products",
    "QUERY: SELECT nam FROM products",
    "QUERY: SELECT * FROM orders",
    "QUERY: SELECT random()",
    "QUERY: SELECT title, sum(quantity) FROM orders JOIN products USING (product_id) "
    "GROUP BY title ORDER BY 2 DESC, 1",
    "ANSWER: mug | 10\nlamp | 2\nchair | 1\ndesk | 1",
]


@pytest.fixture(scope="module")
def runner() -> Iterator[SqlRunner]:
    with SqlRunner() as runner:
        yield runner


@pytest.fixture
def env(bank: QuestionBank, runner: SqlRunner) -> SQLEnvironment:
    return SQLEnvironment(bank, runner, step_budget=15)


def test_first_observation(env: SQLEnvironment) -> None:
    result = env.reset(question_id="shop-1", episode_id="e-1")
    seen = result.observation
    assert result.episode_id == "e-1"
    assert (seen.question, seen.schema_info) == (
        "How many customers are there?",
        "Tables: customers, products, orders",
    )
    assert (seen.result, seen.error, seen.reward, seen.done) == ("", None, None, False)
    assert (seen.step_count, seen.budget_remaining, seen.action_history) == (0, 15, [])
    assert (result.reward, result.done, result.info.outcome, result.info.ledger.total) == (
        None,
        False,
        None,
        0.0,
    )


def test_a_whole_episode(env: SQLEnvironment) -> None:
    env.reset(question_id="shop-5")
    described = env.step("describe `Orders`;")
    assert described.observation.result.split("\n")[:2] == [
        "orders: 6 rows",
        "order_id INTEGER primary key",
    ]
    assert described.observation.schema_info == (
        "Tables: customers, products, orders\n"
        "orders(order_id, customer_id, product_id, quantity, note)"
    )
    assert described.observation.action_history == ["DESCRIBE: `Orders`;"]
    assert described.reward == described.observation.reward == 0.01
    sampled = env.step(SQLAction(action_type=ActionType.SAMPLE, argument="products"))
    assert sampled.observation.result.split("\n") == [
        "product_id | title | price",
        "1 | lamp | 24.5",
        "2 | chair | 80.0",
        "3 | desk | 120.25",
        "4 | mug | 7.75",
    ]
    wrong = env.step("QUERY: SELECT nam FROM products")
    hint = "no such column: nam; the columns are products(product_id, title, price)"
    assert (wrong.observation.result, wrong.observation.error) == ("", hint)
    assert (wrong.info.error_code, wrong.reward) == ("sql_error", -0.02)
    right = env.step(EPISODE[5])
    assert right.observation.error is None
    assert right.info.ledger.potential == 1.0
    assert right.reward == 0.16
    end = env.step(EPISODE[6])
    assert (end.done, end.info.outcome, end.info.ledger.correctness) == (True, Outcome.CORRECT, 1.0)
    assert (end.observation.result, end.observation.error, end.observation.budget_remaining) == (
        "",
        None,
        10,
    )
    assert end.reward == 1.0
    assert end.info.ledger.total == 0.01 + 0.01 - 0.02 + 0.16 + 1.0
    with pytest.raises(Conflict, match="over"):
        env.step("ANSWER: 1")
    assert env.state.outcome == Outcome.CORRECT


def test_the_budget_ends_an_episode(env: SQLEnvironment) -> None:
    env.reset(question_id="shop-1", step_budget=2)
    assert not env.step("DESCRIBE: orders").done
    end = env.step("SAMPLE: orders")
    assert (end.done, end.info.outcome, end.observation.budget_remaining) == (
        True,
        Outcome.BUDGET,
        0,
    )
    env.reset(question_id="shop-1", step_budget=1)
    assert env.step("ANSWER: 5").info.outcome == Outcome.CORRECT
    assert (
        SQLEnvironment(env.bank, env.executor, step_budget=7)
        .reset(seed=1)
        .observation.budget_remaining
        == 7
    )


@pytest.mark.parametrize(
    "action", ["DESCRIBE: nope", "SAMPLE: sqlite_master", "DESCRIBE: orders; DROP TABLE orders"]
)
def test_unknown_tables(env: SQLEnvironment, action: str) -> None:
    env.reset(question_id="shop-1")
    result = env.step(action)
    assert result.info.error_code == "no_such_table"
    assert str(result.observation.error).endswith("the tables are customers, products, orders")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM nope", "no_such_table"),
        ("SELEC 1", "sql_error"),
        ("SELECT sql FROM sqlite_master", "sql_denied"),
        ("DELETE FROM orders", "sql_denied"),
        ("SELECT hex(printf('%.*c', 40000, 'a'))", "sql_budget"),
    ],
)
def test_failing_queries_show_the_reason(env: SQLEnvironment, sql: str, code: str) -> None:
    env.reset(question_id="shop-1")
    result = env.step(f"QUERY: {sql}")
    assert result.info.error_code == code
    assert result.observation.error
    assert result.observation.result == ""
    assert not result.done


def test_repeat_and_new_info(env: SQLEnvironment) -> None:
    env.reset(question_id="zoo-3")
    first = env.step("QUERY: SELECT name FROM keepers WHERE keeper_id = 1")
    assert set(first.info.ledger.step) >= {"exec_ok", "new_info"}
    same = env.step("QUERY: select  NAME from keepers where keeper_id=1;")
    assert set(same.info.ledger.step) == {"exec_ok", "repeat", "step_cost"}
    other_words = env.step("QUERY: SELECT name FROM keepers WHERE keeper_id < 2")
    # the same result text
    assert set(other_words.info.ledger.step) == {"exec_ok", "step_cost"}
    env.step("DESCRIBE: keepers")
    assert "repeat" in env.step("DESCRIBE: 'KEEPERS'").info.ledger.step
    assert env.step("DESCRIBE: keepers").observation.schema_info.count("keepers(") == 1


def test_constants_earn_no_progress(env: SQLEnvironment) -> None:
    env.reset(question_id="shop-1")
    for constant in ("SELECT 5", "SELECT 5 FROM orders LIMIT 1", "SELECT max(5) FROM customers"):
        assert env.step(f"QUERY: {constant}").info.ledger.potential == 0.0
    assert env.step("QUERY: SELECT count(*) FROM customers").info.ledger.potential == 1.0


@pytest.mark.parametrize(
    ("sql", "correct"),
    [
        ("SELECT 5", False),
        ("SELECT 5 FROM orders LIMIT 1", False),
        ("SELECT max(5) FROM customers", False),
        ("SELECT count(*) FROM customers", True),
        ("SELECT sum(1) FROM customers", True),
    ],
)
def test_a_constant_is_no_answer_in_sql(env: SQLEnvironment, sql: str, correct: bool) -> None:
    env.reset(question_id="shop-1", answer_form="sql")
    outcome = env.step(f"ANSWER: {sql}").info.outcome
    assert outcome == (Outcome.CORRECT if correct else Outcome.WRONG)


def test_names_in_errors_are_escaped(env: SQLEnvironment) -> None:
    env.reset(question_id="shop-1")
    for action in (
        'QUERY: SELECT "a\x1b[2K\u2028b"() FROM customers',
        'QUERY: SELECT 1 FROM "x\x00\x85y"',
        'QUERY: SELECT 1 FROM "x\x1b\u2029y"',
        "DESCRIBE: x\x1b[2Ky\u2028z",
    ):
        error = env.step(action).observation.error
        assert error is not None
        assert error.isprintable(), error


def test_names_are_shown_as_sql_needs_them(tiny_data: Path, tmp_path: Path) -> None:
    """An agent can copy each name from an observation or an error into a query."""
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    with closing(sqlite3.connect(data / "databases" / "shop" / "shop.sqlite")) as connection:
        connection.executescript(
            'CREATE TABLE "group" ("Home Town" TEXT PRIMARY KEY, "say ""hi""" INT, size INT);'
            'CREATE TABLE "a, b" (town REFERENCES "group"("Home Town"));'
        )
    with SqlRunner() as runner:
        env = SQLEnvironment(QuestionBank.load(data), runner)
        seen = env.reset(question_id="shop-1").observation
        assert seen.schema_info == 'Tables: customers, products, orders, "group", "a, b"'
        assert seen.tables == ["customers", "products", "orders", "group", "a, b"]
        described = env.step('DESCRIBE: "group"').observation
        assert described.result.splitlines() == [
            '"group": 0 rows',
            '"Home Town" TEXT primary key',
            '"say ""hi""" INT',
            "size INT",
        ]
        line = '"group"("Home Town", "say ""hi""", size)'
        assert described.schema_info.splitlines()[1] == line
        assert read_schema(described.schema_info)[1] == {"group": ["Home Town", 'say "hi"', "size"]}
        assert env.step("DESCRIBE: a, b").observation.result == (
            '"a, b": 0 rows\ntown -> "group"."Home Town"'
        )
        query = 'SELECT "Home Town", "say ""hi""", size FROM "group", "a, b"'
        assert env.step(f"QUERY: {query}").observation.error is None
        error = env.step('QUERY: SELECT nope FROM "group"').observation.error
        assert error == f"no such column: nope; the columns are {line}"
        error = env.step("DESCRIBE: towns").observation.error
        assert error is not None
        assert error.endswith('; the tables are customers, products, orders, "group", "a, b"')


def test_a_replay_gives_the_same_bytes(bank: QuestionBank, tiny_data: Path) -> None:
    """In this process or in workers, on one bank or another, step by step or by a reset with
    actions."""
    with SqlRunner() as runner:
        env = SQLEnvironment(bank, runner)
        replies = [env.reset(question_id="shop-5", episode_id="e").model_dump_json()]
        for action in EPISODE:
            replies.append(env.step(action).model_dump_json())
        other = SQLEnvironment(QuestionBank.load(tiny_data), runner)
        rebuilt = other.reset(question_id="shop-5", episode_id="e", actions=EPISODE)
        assert rebuilt.model_dump_json(exclude={"episode_id"}) == replies[-1]
        assert other.state == env.state

    async def in_workers() -> list[str]:
        async with SqlPool(2) as pool:
            env = SQLEnvironment(QuestionBank.load(tiny_data))

            jobs = env.reset_jobs(question_id="shop-5", episode_id="e")
            replayed = [(await drive_async(jobs, pool.run)).model_dump_json()]
            for action in EPISODE:
                replayed.append(
                    (await drive_async(env.step_jobs(action), pool.run)).model_dump_json()
                )
            return replayed

    assert asyncio.run(in_workers()) == replies


def test_a_killed_query_ends_the_episode(bank: QuestionBank, runner: SqlRunner) -> None:
    class Deadly:
        def run(self, job: SqlJob) -> SqlResult:
            if job.kind == JobKind.QUERY:
                return SqlResult(
                    error="the query takes too long or too much memory", error_code="sql_killed"
                )
            return runner.run(job)

    env = SQLEnvironment(bank, Deadly())
    env.reset(question_id="shop-1")
    result = env.step("QUERY: SELECT 1")
    assert (result.done, result.info.outcome, result.reward) == (True, Outcome.SQL_KILLED, -0.02)
    assert result.observation.error


def test_a_description_that_took_too_long_once_is_read_again(
    bank: QuestionBank, runner: SqlRunner
) -> None:
    class SlowOnce:
        slow = True

        def run(self, job: SqlJob) -> SqlResult:
            if self.slow and job.kind == JobKind.DESCRIBE:
                self.slow = False
                return SqlResult(error="it takes too much CPU time", error_code="sql_budget")
            return runner.run(job)

    env = SQLEnvironment(bank, SlowOnce())
    env.reset(question_id="shop-1")
    assert env.step("DESCRIBE: customers").observation.error
    assert not env.step("DESCRIBE: customers").observation.error


def test_a_lost_sql_worker_leaves_the_episode_unchanged(
    bank: QuestionBank, runner: SqlRunner
) -> None:
    class Flaky:
        down = False

        def run(self, job: SqlJob) -> SqlResult:
            if self.down:
                raise NotReady("no worker")
            return runner.run(job)

    executor = Flaky()
    env = SQLEnvironment(bank, executor)
    env.reset(question_id="shop-1")
    env.step("QUERY: SELECT 1")
    before = env.state
    executor.down = True
    with pytest.raises(NotReady):
        env.step("QUERY: SELECT count(*) FROM customers")
    assert env.state == before
    executor.down = False
    assert env.step("QUERY: SELECT count(*) FROM customers").observation.step_count == 2


def test_broken_data_is_no_agent_error(tiny_data: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    path = data / "databases" / "zoo" / "zoo.sqlite"
    path.write_bytes(path.read_bytes()[:1000])
    with SqlRunner() as runner:
        env = SQLEnvironment(QuestionBank.load(data), runner)
        with pytest.raises(DatabaseLoadError, match="zoo"):
            env.reset(question_id="zoo-1")
        assert env.reset(question_id="shop-1").observation.schema_info
        path.unlink()


def test_a_gold_that_fails_is_named(tiny_data: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    path = data / "questions" / "questions_train.json"
    path.write_text(
        path.read_text().replace("SELECT count(*) FROM customers", "SELECT count(*) FROM clients")
    )
    with SqlRunner() as runner:
        env = SQLEnvironment(QuestionBank.load(data), runner)
        with pytest.raises(DatabaseLoadError, match=r"shop-1.*no such table: clients"):
            env.reset(question_id="shop-1")


def test_no_observation_or_state_holds_gold(env: SQLEnvironment) -> None:
    env.reset(question_id="shop-3")
    reply = env.step("DESCRIBE: products").model_dump_json() + env.state.model_dump_json()
    assert "desk" not in reply
    assert "SELECT" not in reply
