"""Generated statements, actions, episodes and requests: properties that hold for any of them.

Each test is brief and reproducible, and with `-m slow` long and different each time.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic_core import to_json

from env_server.questions import QuestionBank
from env_server.render import MAX_CELL_CHARS, MAX_RESULT_BYTES, render_rows
from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.run import SqlRunner
from env_server.sql.sandbox import VFS_NAME
from shared.actions import ActionType, SQLAction, parse_action, render_action
from shared.errors import ActionParseError
from shared.server_process import running_server
from tests.conftest import make_database, write_data
from tests.env_server.in_process import LocalEnvironment
from tests.fuzz.strategies import STATEMENTS, actions, expressions, statements

# Small enough that an example takes milliseconds. The CPU limit stays far above the time of the
# expensive calls: near it, the result would depend on the machine.
LIMITS = SqlLimits(max_vm_steps=200_000, max_heap_bytes=24 * 1024 * 1024)
CODES = {"no_such_table", "sql_error", "sql_denied", "sql_budget"}
SECRET = "only_the_catalogue_holds_this"  # it is in the text of a CREATE TABLE, and in no row
CANARY = "SELECT count(*), min(name), max(name) FROM customers"
_PATH = re.compile(r"(?:^|[\s'\"(=:])(?:/[\w.@+-]+){2,}|\.sqlite\b")


class World:
    """Tiny data with a secret in the catalogue, with a runner and a bank. Close it at the end."""

    def __init__(self, directory: Path) -> None:
        self.data = write_data(directory)
        self.path = str(directory / "databases" / "shop" / "shop.sqlite")
        make_database(
            Path(self.path),
            f"CREATE TABLE t (a, b TEXT DEFAULT '{SECRET}'); INSERT INTO t VALUES (1, 'x'), "
            "(NULL, 2.5)",
        )
        self.files = sorted(directory.rglob("*"))
        self.bytes = Path(self.path).read_bytes()
        self.bank = QuestionBank.load(self.data, LIMITS)
        self.runner = SqlRunner(LIMITS)
        self.canary = self.runner.run(SqlJob(JobKind.QUERY, self.path, CANARY))
        self.gold = self.runner.run(SqlJob(JobKind.GOLD, self.path, CANARY))
        assert self.canary.rows == self.gold.rows == [(5, "Ann", "Zoë")]

    def close(self) -> None:
        self.runner.close()
        assert Path(self.path).read_bytes() == self.bytes, "the database has changed"
        assert sorted(self.data.rglob("*")) == self.files, "files have come or gone"

    def query(self, sql: str) -> SqlResult:
        return self.runner.run(SqlJob(JobKind.QUERY, self.path, sql))


def check_statement(world: World, sql: str) -> None:
    """A statement gives rows or the agent's own error, reproducibly, and leaves no effect."""
    result = world.query(sql)
    if result.error is None:
        assert result.error_code is None
        check_rows(result, sql)
    else:
        assert result.error_code in CODES
        assert (result.rows, result.truncated) == ([], False)
        check_error(result.error, sql)
    again = world.query(sql)
    assert again == result
    assert world.query(CANARY) == world.canary
    assert world.runner.run(SqlJob(JobKind.GOLD, world.path, CANARY)) == world.gold


def check_rows(result: SqlResult, sql: str) -> None:
    assert len(result.rows) <= LIMITS.shown_rows
    assert all(len(row) == len(result.columns) <= LIMITS.max_columns for row in result.rows)
    if SECRET not in sql:
        assert SECRET not in repr((result.columns, result.rows)), "the catalogue was read"
    shown = render_rows(result, LIMITS.shown_rows)
    assert len(shown.encode(errors="replace")) <= MAX_RESULT_BYTES
    lines = shown.split("\n")
    assert len(lines) <= LIMITS.shown_rows + 2, "a cell has made a line of its own"
    assert all(len(line) <= (MAX_CELL_CHARS + 40) * max(1, len(result.columns)) for line in lines)
    if result.truncated:
        assert lines[-1].startswith((f"(first {len(result.rows)} rows; there are more)", "(cut: "))


def check_error(error: str, sql: str) -> None:
    assert error
    assert "\n" not in error
    assert len(error) < 6_000
    if not _PATH.search(sql):
        assert not _PATH.search(error), error
    assert SECRET in sql or SECRET not in error


def check_action(text: str) -> SQLAction | None:
    try:
        action = parse_action(text)
    except ActionParseError as error:
        refusal = error.message
    else:
        assert parse_action(render_action(action)) == action
        return action
    assert 0 < len(refusal) < 1_000
    return None


def check_episode(world: World, texts: list[str]) -> None:
    """Each action is answered, or refused as invalid, and a replay gives the same bytes."""
    env = LocalEnvironment(world.bank, world.runner)
    budget = max(1, len(texts))
    env.reset(question_id="shop-4", step_budget=budget)
    taken: list[str] = []
    for text in texts:
        action = check_action(text)
        if action is None:
            continue
        if action.action_type == ActionType.QUERY:
            check_statement(world, action.argument)
        result = env.step(action)
        seen = result.observation
        assert seen.step_count == len(taken) + 1 <= budget
        assert len(seen.result.encode(errors="replace")) <= MAX_RESULT_BYTES
        assert (seen.error is None) == (result.info.error_code is None)
        if seen.error is not None:
            assert result.info.error_code in CODES
            check_error(seen.error, text)
        is_last = len(taken) + 1 == budget
        assert result.done == (action.action_type == ActionType.ANSWER or is_last)
        assert -0.25 <= result.info.ledger.total <= 1.2
        taken.append(text)
        last = to_json(result)
        if result.done:
            break
    if taken:
        rebuilt = LocalEnvironment(world.bank, world.runner).reset(
            question_id="shop-4", step_budget=budget, actions=taken
        )
        assert to_json(rebuilt, exclude={"episode_id"}) == last


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
BRIEF = settings(max_examples=120, derandomize=True, database=None, suppress_health_check=CHECKS)
LONG = settings(max_examples=3_000, suppress_health_check=CHECKS)
lengths = pytest.mark.parametrize(
    "length",
    [
        pytest.param(BRIEF, id="brief"),
        pytest.param(LONG, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)


def fuzz(length: settings, examples: st.SearchStrategy[Any], check: Callable[[Any], Any]) -> None:
    @length
    @given(examples)
    def run(drawn: Any) -> None:
        check(drawn)

    run()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("fuzz"))
    yield world
    world.close()
    apsw.hard_heap_limit(SqlLimits().max_heap_bytes)


@lengths
def test_statements(world, length):
    fuzz(length, statements, partial(check_statement, world))


@lengths
def test_episodes(world, length):
    fuzz(
        settings(length, max_examples=length.max_examples // 3),
        st.lists(actions, max_size=8),
        partial(check_episode, world),
    )


@BRIEF
@given(text=st.one_of(actions, st.text(), st.text(alphabet="QUERYquery: \t\n\0ſı", max_size=12)))
@example("ſAMPLE: t")
@example("DESCRİBE: t")
def test_an_action(text):
    check_action(text)


def test_an_expression_has_the_value_that_sqlite_gives_it(world):
    """If the jail allows it: its functions and limits do not change the value."""
    plain = apsw.Connection(world.path, flags=apsw.SQLITE_OPEN_READONLY, vfs=VFS_NAME)
    plain.config(apsw.SQLITE_DBCONFIG_DQS_DML, 1)

    def check(expression: str) -> None:
        sql = f"SELECT {expression} FROM customers, t"
        result = world.query(sql)
        if result.error is not None or result.truncated:
            return
        try:
            expected = plain.execute(sql).fetchall()
        except UnicodeDecodeError:
            return
        # NaN is not a SQLite value; -0.0 and 0.0 differ
        assert repr(result.rows) == repr(expected)

    fuzz(BRIEF, expressions, check)
    plain.close(True)


@pytest.mark.slow
def test_the_strategies_reach_both_sides(world):
    """Many statements run, and every kind of refusal occurs; otherwise the test proves little."""
    seen: Counter[str | None] = Counter()
    count = settings(BRIEF, max_examples=500)
    fuzz(count, statements, lambda sql: seen.update([world.query(sql).error_code]))
    seen.update(world.query(sql).error_code for sql in STATEMENTS[::4])
    # far below the observed count, which changes with any constant of the code
    assert seen[None] > 30, seen
    assert {"sql_error", "sql_denied", "no_such_table", "sql_budget"} <= set(seen), seen


# -- requests

STATUSES = {200, 400, 404, 405, 409, 413, 422, 429}
plain = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=20))
plain |= st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
action_values = st.one_of(
    actions.filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)),
    json_values,
    st.fixed_dictionaries(
        {"action_type": st.sampled_from(["QUERY", "ANSWER", "DROP", 5]), "argument": json_values}
    ),
)
ids = st.one_of(st.just("pooled"), st.text(max_size=70), json_values)
fields = ("question_id", "split", "difficulty", "db_id", "seed", "step_budget", "digest")
steps = st.fixed_dictionaries(
    {"episode_id": ids, "action": action_values},
    optional={"step": json_values, "more": json_values},
)
resets = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(fields, json_values)
    | {"episode_id": ids, "actions": st.lists(action_values, max_size=3) | json_values},
)
batches = st.fixed_dictionaries({"steps": st.lists(json_values, max_size=3)})
requests = st.one_of(
    st.tuples(st.just("/step"), steps),
    st.tuples(st.just("/reset"), resets),
    st.tuples(st.just("/step_batch"), batches),
    st.tuples(st.sampled_from(["/reset", "/step", "/reset_batch", "/step_batch"]), json_values),
)


@pytest.fixture(scope="module")
def http(tiny_data: Path) -> Iterator[httpx.Client]:
    with running_server(tiny_data, "--workers", "1", lease_s=3600) as server:
        with httpx.Client(base_url=server.url, timeout=60) as http:
            yield http
            assert http.get("/ready").status_code == 200
        assert "Traceback" not in server.log()


@lengths
def test_requests(http, length):
    """A reply has a documented status, is JSON, and its errors have the one shape."""

    def check(request: tuple[str, Any]) -> None:
        http.post("/reset", json={"episode_id": "pooled", "seed": 1, "step_budget": 100})
        path, body = request
        reply = http.post(path, json=body)
        assert reply.status_code in STATUSES, reply.text
        found = reply.json()
        if reply.status_code != 200:
            assert set(found) == {"error"}
            assert {"code", "message", "retryable"} <= set(found["error"])
            assert len(reply.content) < 20_000

    fuzz(length, requests, check)
