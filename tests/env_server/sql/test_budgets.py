"""What a statement may use: SQLite's limits, steps, CPU time, expensive calls and memory."""

import time

import apsw
import pytest

from env_server.sql import SqlLimits
from env_server.sql.run import SqlRunner
from tests.conftest import make_database
from tests.env_server.sql.conftest import ENDLESS, NUMBERS, query

CROSS_JOIN = "SELECT count(*) FROM " + ", ".join(f"customers c{i}" for i in range(14))
SORT_IN_MEMORY = f"{NUMBERS} SELECT i || printf('%.*c', 40000, 'x') AS x FROM n ORDER BY x"


@pytest.mark.parametrize("name", ["overflow", "too many", "at most 7 tables", "JSON path too deep"])
def test_a_name_that_sounds_like_a_limit_is_no_limit(runner, shop, name):
    for sql in (f'SELECT customers."{name}" FROM customers', f'SELECT "{name}"()'):
        assert query(runner, shop, sql).error_code == "sql_error"
    assert query(runner, shop, f'SELECT 1 FROM "{name}"').error_code == "no_such_table"
    assert query(runner, shop, "SELECT abs(-9223372036854775808)").error_code == "sql_error"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + ", ".join("1" * 201),
        "SELECT 1" + " UNION SELECT 1" * 30,
        "SELECT max(1" + ", 1" * 40 + ")",
        "SELECT 1" + "+1" * 200,
        "SELECT " + "(" * 3000 + "1" + ")" * 3000,
        "SELECT 1 FROM orders a0" + "".join(f", orders a{i}" for i in range(1, 65)),
        "SELECT 1 FROM orders a0" + "".join(f", orders a{i}" for i in range(1, 300)),
        "SELECT 'a' LIKE '" + "%a" * 60 + "'",
        "SELECT replace(printf('%.*c', 40000, 'a'), 'a', 'aaa')",
        "SELECT 1 ORDER BY 1" + ", 1" * 300,
    ],
)
def test_each_of_sqlites_limits_is_a_limit(runner, shop, sql):
    assert query(runner, shop, sql).error_code == "sql_budget"


def test_steps_are_the_same_whatever_ran_before(shop):
    tables = ", ".join(f"customers {name}" for name in "abcdef")
    sql = f"SELECT count(*) FROM {tables}"
    with SqlRunner() as first, SqlRunner() as second:
        query(second, shop, "SELECT * FROM orders")
        query(second, shop, CROSS_JOIN)
        once, again, elsewhere = (query(one, shop, sql) for one in (first, first, second))
    assert once == again == elsewhere
    assert once.vm_steps > 10_000


def test_the_steps_alone_stop_a_statement(shop):
    limits = SqlLimits(max_vm_steps=100_000, max_cpu_s=1e9)
    rows = ENDLESS.replace("100000000", "{}")
    with SqlRunner(limits) as runner:
        short, long = (query(runner, shop, rows.format(n)) for n in (1_000, 1_000_000))
    assert short.rows == [(1_000,)]
    assert (long.rows, long.error_code) == ([], "sql_budget")
    assert long.vm_steps == limits.max_vm_steps + limits.handler_vm_steps


def test_cpu_time_is_the_net_under_the_steps(shop):
    with SqlRunner(SqlLimits(max_vm_steps=10**12, max_cpu_s=0.2)) as runner:
        by_time = query(runner, shop, ENDLESS)
    with SqlRunner(SqlLimits(max_vm_steps=1_000_000)) as runner:
        by_steps = query(runner, shop, ENDLESS)
    assert by_time.error_code == by_steps.error_code == "sql_budget"
    assert by_time.error == by_steps.error  # which of the two it was depends on the machine


def long_loop(max_length: int, expression: str) -> str:
    """Return a query that evaluates `expression` a million times on long texts x and y.

    y starts like x, so that a search fails late.
    """
    return (
        "WITH RECURSIVE n(i) AS MATERIALIZED (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT "
        "1000000), "
        f"v AS MATERIALIZED (SELECT printf('%.*c', {max_length - 1000}, '1') AS x), "
        f"w AS MATERIALIZED (SELECT printf('%.*c', {max_length // 2}, '1') || 'b' AS y) "
        f"SELECT sum({expression}) FROM n CROSS JOIN v CROSS JOIN w"
    )


@pytest.mark.parametrize(
    "expression", ["instr(x || (i * 0), y)", "x + i", "length(upper(x || i))", "y LIKE x || '%'"]
)
def test_expensive_steps_are_stopped_by_their_cpu_time(shop, expression):
    """Each takes minutes within the step budget, and seconds between two counts of steps."""
    with SqlRunner(SqlLimits(max_cpu_s=0.2)) as runner:
        began = time.thread_time()
        result = query(runner, shop, long_loop(SqlLimits().max_length_bytes, expression))
        assert time.thread_time() - began < 1.0
        assert query(runner, shop, "SELECT count(*) FROM orders").rows == [(6,)]
    assert result.error_code == "sql_budget"


def test_calls_that_aliases_multiply_are_counted(shop):
    """4,096 calls of 7 ms in a row, which no interrupt can end."""
    sql = "(SELECT instr(x, y) AS f FROM v, w)"
    for _ in range(12):
        sql = f"(SELECT f + f AS f FROM {sql})"
    sql = long_loop(50_000, "f").replace("FROM n CROSS JOIN v CROSS JOIN w", f"FROM {sql}")
    most = SqlLimits().max_expensive_calls
    with SqlRunner() as runner:
        began = time.thread_time()
        assert query(runner, shop, sql).error_code == "sql_budget"
        assert time.thread_time() - began < 1.0
        likes = " + ".join(["(city LIKE '%o%')"] * most)
        like = "SELECT {} FROM customers WHERE city = 'Oslo'"
        assert query(runner, shop, like.format(likes)).rows == [(most,), (most,)]
        more = query(runner, shop, like.format(f"{likes} + (name LIKE '%a%')"))
        assert more.error_code == "sql_budget"


def test_memory_is_judged_on_an_empty_heap(tmp_path):
    """Other databases' caches must not make a query fail that succeeds on a fresh worker."""
    rows = NUMBERS.replace("100000000", "1500")
    script = (
        f"CREATE TABLE t (x); {rows} INSERT INTO t SELECT printf('%.*c', 1000, 'x') || i FROM n"
    )
    paths = [make_database(tmp_path / f"{i}.sqlite", script) for i in range(8)]
    limits = SqlLimits(max_heap_bytes=10 * 1024 * 1024)
    texts = "SELECT x || 'y' || x || x || x AS x FROM t ORDER BY 1 LIMIT 3"
    sort = f"SELECT length(group_concat(x)) FROM ({texts})"
    try:
        with SqlRunner(limits) as fresh:
            alone = query(fresh, paths[0], sort)
        with SqlRunner(limits) as busy:
            for path in paths:
                query(busy, path, "SELECT count(x || 'y') FROM t")
            among_others = query(busy, paths[0], sort)
        assert alone == among_others
    finally:
        apsw.hard_heap_limit(SqlLimits().max_heap_bytes)


def test_memory_that_runs_out_is_the_querys_error(shop):
    with SqlRunner(SqlLimits(max_heap_bytes=16 * 1024 * 1024)) as runner:
        result = query(runner, shop, SORT_IN_MEMORY)
        assert (result.error_code, "memory" in str(result.error)) == ("sql_budget", True)
        assert query(runner, shop, "SELECT count(*) FROM orders").rows == [(6,)]
    apsw.hard_heap_limit(SqlLimits().max_heap_bytes)
