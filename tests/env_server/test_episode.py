"""One episode in process: observations, rewards, ends, faults."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from env_server.questions import QuestionBank
from env_server.sql import JobKind, SqlJob, SqlResult
from env_server.sql.run import SqlRunner
from shared.actions import ActionType, SQLAction
from shared.errors import Conflict, DatabaseLoadError
from shared.models import Outcome
from tests.conftest import make_database
from tests.env_server.in_process import LocalEnvironment
from trainer.rollout.generators.policies import read_schema

PIECES = (
    "SELECT title, sum(quantity) FROM orders JOIN products USING (product_id) GROUP BY title "
    "ORDER BY 2 DESC, 1"
)


class Faulty(SqlRunner):
    """Runs jobs, except those of the `kind` that fails, which raise or return its `fault`."""

    kind: JobKind | None = None
    fault: SqlResult | Exception | None = None

    def run(self, job: SqlJob) -> SqlResult:
        if self.fault is None or job.kind != self.kind:
            return super().run(job)
        if isinstance(self.fault, Exception):
            raise self.fault
        return self.fault


@pytest.fixture
def faulty() -> Iterator[Faulty]:
    with Faulty() as runner:
        yield runner


def test_a_whole_episode(env):
    env.reset(question_id="shop-5", explain=[])
    described = env.step("describe `Orders`;")
    seen = described.observation
    assert seen.result.startswith("orders: 6 rows\norder_id INTEGER primary key\n")
    columns = "orders(order_id, customer_id, product_id, quantity, note)"
    assert seen.schema_info == f"Tables: customers, products, orders\n{columns}"
    assert seen.action_history == ["DESCRIBE: `Orders`;"]
    assert described.reward == seen.reward == 0.01
    sampled = env.step(SQLAction(action_type=ActionType.SAMPLE, argument="products"))
    rows = "1 | lamp | 24.5\n2 | chair | 80.0\n3 | desk | 120.25\n4 | mug | 7.75"
    assert sampled.observation.result == f"product_id | title | price\n{rows}"
    wrong = env.step("QUERY: SELECT nam FROM products")
    hint = "no such column: nam; the columns are products(product_id, title, price)"
    assert (wrong.observation.result, wrong.observation.error) == ("", hint)
    assert (wrong.info.error_code, wrong.reward) == ("sql_error", -0.02)
    right = env.step(f"QUERY: {PIECES}")
    assert (right.observation.error, right.info.ledger.potential, right.reward) == (None, 1.0, 0.16)
    end = env.step("ANSWER: mug | 10\nlamp | 2\nchair | 1\ndesk | 1")
    assert (end.done, end.info.outcome, end.info.ledger.correctness) == (True, Outcome.CORRECT, 1.0)
    assert (end.observation.result, end.observation.budget_remaining) == ("", 10)
    assert (end.reward, end.info.ledger.total) == (1.0, 0.01 + 0.01 - 0.02 + 0.16 + 1.0)
    with pytest.raises(Conflict, match="over"):
        env.step("ANSWER: 1")


def test_repeat_and_new_info(env):
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
def test_a_constant_is_no_answer_in_sql(env, sql, correct):
    env.reset(question_id="shop-1", answer_form="sql")
    outcome = env.step(f"ANSWER: {sql}").info.outcome
    assert outcome == (Outcome.CORRECT if correct else Outcome.WRONG)


def test_names_in_errors_are_escaped(env):
    env.reset(question_id="shop-1")
    for action in (
        'QUERY: SELECT "a\x1b[2K\u2028b"() FROM customers',
        'QUERY: SELECT 1 FROM "x\x00\x85y"',
        'QUERY: SELECT 1 FROM "x\x1b\u2029y"',
        "DESCRIBE: x\x1b[2Ky\u2028z\u202e",
    ):
        error = env.step(action).observation.error
        assert error.isprintable(), error


def test_names_are_shown_as_sql_needs_them(runner, tiny_data, tmp_path):
    """An agent can copy each name from an observation or an error into a query."""
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    make_database(
        data / "databases" / "shop" / "shop.sqlite",
        'CREATE TABLE "group" ("Home Town" TEXT PRIMARY KEY, "say ""hi""" INT, size INT);'
        'CREATE TABLE "a, b" (town REFERENCES "group"("Home Town"));',
    )
    env = LocalEnvironment(QuestionBank.load(data), runner)
    seen = env.reset(question_id="shop-1").observation
    assert seen.schema_info == 'Tables: customers, products, orders, "group", "a, b"'
    assert seen.tables == ["customers", "products", "orders", "group", "a, b"]
    described = env.step('DESCRIBE: "group"').observation
    columns = '"Home Town" TEXT primary key\n"say ""hi""" INT\nsize INT'
    assert described.result == f'"group": 0 rows\n{columns}'
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
    assert error.endswith('; the tables are customers, products, orders, "group", "a, b"')


def test_a_killed_query_ends_the_episode(bank, faulty):
    env = LocalEnvironment(bank, faulty)
    env.reset(question_id="shop-1")
    faulty.kind, faulty.fault = JobKind.QUERY, SqlResult(error="long", error_code="sql_killed")
    result = env.step("QUERY: SELECT 1")
    assert (result.done, result.info.outcome, result.reward) == (True, Outcome.SQL_KILLED, -0.02)
    assert result.observation.error == "long"


def test_a_description_that_took_too_long_once_is_read_again(tiny_data, faulty):
    env = LocalEnvironment(QuestionBank.load(tiny_data), faulty)
    env.reset(question_id="shop-1")
    faulty.kind, faulty.fault = JobKind.DESCRIBE, SqlResult(error="long", error_code="sql_budget")
    assert env.step("DESCRIBE: customers").observation.error
    faulty.kind = None
    assert not env.step("DESCRIBE: customers").observation.error
    faulty.kind = JobKind.VALUES
    assert "'lamp'" not in env.step("DESCRIBE: products").observation.result
    faulty.kind = None
    assert "'lamp'" in env.step("DESCRIBE: products").observation.result


def test_an_sql_answer_that_kills_its_workers_is_no_wrong_answer(tiny_data, faulty):
    env = LocalEnvironment(QuestionBank.load(tiny_data), faulty)
    env.reset(question_id="shop-1", answer_form="sql")
    faulty.kind, faulty.fault = JobKind.QUERY, SqlResult(error="long", error_code="sql_killed")
    reply = env.step("ANSWER: SELECT count(*) FROM customers")
    assert (reply.info.outcome, reply.done) == (Outcome.SQL_KILLED, True)


def test_broken_data_is_no_agent_error(runner, tiny_data, tmp_path):
    data = Path(shutil.copytree(tiny_data, tmp_path / "data"))
    path = data / "databases" / "zoo" / "zoo.sqlite"
    path.write_bytes(path.read_bytes()[:1000])
    path = data / "questions" / "questions_train.json"
    path.write_text(path.read_text().replace("count(*) FROM customers", "count(*) FROM clients"))
    env = LocalEnvironment(QuestionBank.load(data), runner)
    with pytest.raises(DatabaseLoadError, match="zoo"):
        env.reset(question_id="zoo-1")
    with pytest.raises(DatabaseLoadError, match=r"shop-1.*no such table: clients"):
        env.reset(question_id="shop-1")
    assert env.reset(question_id="shop-2").observation.schema_info
