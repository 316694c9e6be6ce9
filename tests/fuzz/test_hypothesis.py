"""Property-based: the properties hold for any input, and the server answers as documented."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from env_server.sql import SqlLimits
from shared.server_process import running_server
from tests.fuzz.properties import World, check_action, check_episode, check_statement
from tests.fuzz.strategies import STATEMENTS, actions, expressions, statements

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
brief = settings(max_examples=120, derandomize=True, suppress_health_check=CHECKS)
long = settings(max_examples=6_000, suppress_health_check=CHECKS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("fuzz"))
    yield world
    world.close()
    apsw.hard_heap_limit(SqlLimits().max_heap_bytes)


@brief
@given(sql=statements)
def test_a_statement(world: World, sql: str) -> None:
    check_statement(world, sql)


@brief
@given(text=st.one_of(actions, st.text(), st.text(alphabet="QUERYquery: \t\n\0ſı", max_size=12)))
@example("ſAMPLE: t")
@example("DESCRİBE: t")
def test_an_action(text: str) -> None:
    check_action(text)


@settings(brief, max_examples=40)
@given(texts=st.lists(actions, max_size=6))
def test_an_episode(world: World, texts: list[str]) -> None:
    check_episode(world, texts)


@brief
@given(expression=expressions)
def test_an_expression_has_the_value_that_sqlite_gives_it(world: World, expression: str) -> None:
    """If the jail allows it: its functions, limits and clock do not change the value."""
    sql = f"SELECT {expression} FROM customers, t"
    result = world.query(sql)
    timed = any(word in sql.lower() for word in ("'now'", "current_"))
    if result.error is not None or result.truncated or timed:
        return
    plain = apsw.Connection(world.path, flags=apsw.SQLITE_OPEN_READONLY)
    plain.config(apsw.SQLITE_DBCONFIG_DQS_DML, 1)
    try:
        expected = plain.execute(sql).fetchall()
    except UnicodeDecodeError:
        return
    finally:
        plain.close(True)
    # NaN is not a SQLite value; -0.0 and 0.0 differ
    assert repr(result.rows) == repr(expected)


def test_the_strategies_reach_both_sides(world: World) -> None:
    """Many statements run, and every kind of refusal occurs; otherwise the test proves little."""
    seen: Counter[str | None] = Counter()

    @settings(brief, max_examples=300, database=None)
    @given(sql=statements)
    def run(sql: str) -> None:
        seen[world.query(sql).error_code] += 1

    run()
    seen.update(world.query(sql).error_code for sql in STATEMENTS[:40])
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


def check_request(http: httpx.Client, path: str, body: Any) -> None:
    """A reply has a documented status, is JSON, and its errors have the one shape."""
    http.post("/reset", json={"episode_id": "pooled", "seed": 1, "step_budget": 100})
    reply = http.post(path, json=body)
    assert reply.status_code in STATUSES, reply.text
    found = reply.json()
    if reply.status_code != 200:
        assert set(found) == {"error"}
        assert {"code", "message", "retryable"} <= set(found["error"])
        assert len(reply.content) < 20_000


@brief
@given(request=requests)
def test_a_request(http: httpx.Client, request: tuple[str, Any]) -> None:
    check_request(http, *request)


# -- long


@pytest.mark.slow
@pytest.mark.timeout(1200)
@long
@given(sql=statements)
def test_many_statements(world: World, sql: str) -> None:
    check_statement(world, sql)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(long, max_examples=1_500)
@given(texts=st.lists(actions, max_size=8))
def test_many_episodes(world: World, texts: list[str]) -> None:
    check_episode(world, texts)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(long, max_examples=3_000)
@given(request=requests)
def test_many_requests(http: httpx.Client, request: tuple[str, Any]) -> None:
    check_request(http, *request)
