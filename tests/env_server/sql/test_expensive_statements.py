"""No admitted statement takes long: every allowed function, sorts, joins and what compiles slowly.

Each runs on one worker process of a server, under its limits. A statement may take about 1 s more
than its limit of 2 s of CPU: SQLite sorts in one step.
"""

import asyncio
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from env_server.sql import JobKind, SqlJob
from env_server.sql.limits import AGGREGATES, SCALARS, WINDOWS, SqlLimits
from env_server.sql.pool import SqlPool
from tests.conftest import make_database
from tests.env_server.sql.conftest import pids

# Values of nearly `max_length_bytes`, or such that are expensive to read.
LONG = {
    "a": "printf('%.*c', 48000, 'a')",
    "ab": "printf('%.*c', 24000, 'a') || 'b'",
    "digits": "printf('%.*c', 48000, '1')",
    "fraction": "'0.' || printf('%.*c', 47000, '0') || '1e300'",
    "blanks": "printf('%.*c', 48000, ' ')",
    "quotes": "printf('%.*c', 24000, '''')",
    "wide": "printf('%.*c', 12000, char(128512))",
    "nulls": "printf('%.*c', 24000, 'a') || char(0) || printf('%.*c', 24000, 'a')",
    "bytes": "CAST(printf('%.*c', 48000, 'a') AS BLOB)",
    "escapes": "replace(printf('%.*c', 7900, 'a'), 'a', '\\u0041')",
    "pairs": "replace(printf('%.*c', 3900, 'a'), 'a', '\\ud83d\\ude00')",
    "numbers": "'[' || replace(printf('%.*c', 23000, 'a'), 'a', '1,') || '1]'",
    "strings": "'[' || replace(printf('%.*c', 4000, 'a'), 'a', '\"\\u0041\",') || '1]'",
    "object": "'{' || replace(printf('%.*c', 6900, 'a'), 'a', '\"a\":1,') || '\"b\":1}'",
    "deep": "printf('%.*c', 990, '[') || '\"' || printf('%.*c', 45000, 'a') || '\"' "
    "|| printf('%.*c', 990, ']')",
    "json5": "'[' || replace(printf('%.*c', 5900, 'a'), 'a', '0x1F,/**/') || '1]'",
    "path": "'$' || replace(printf('%.*c', 900, 'a'), 'a', '[0]')",
    "many": "'' || replace(printf('%.*c', 6000, 'a'), 'a', '%Q%s%d%f')",
    "dates": "replace(printf('%.*c', 12000, 'a'), 'a', '%J%f')",
}
SHORT = (
    "0", "1", "-1", "2", "15", "24000", "47999", "1e300", "-1e-300", "9223372036854775807",
    "-9223372036854775808", "0.1", "NULL", "''", "'a'", "'b'", "'%'", "'~'", "'$'", "'$.b'",
    "'$[#-1]'", "'$[23000]'", "'$.a.b.c'", "'%.*c'", "'%48000d'", "'%,48000d'", "'%.40000f'",
    "'%!.40000g'", "'%-48000s'", "'%Q'", "'%w'", "'%.10000e'", "'now'", "'2024-01-31'",
    "'+1000000 days'", "'-4000 years'", "'+10000 months'", "'weekday 0'", "'start of year'",
    "'auto'", "'ceiling'", "'subsec'", "'localtime'", "'utc'", "'%J'", "'%Y-%m-%d'", "'\\u00410'",
    f"'%{'a_' * 45}b'", f"'{'%a' * 49}b'", f"'*{'a?' * 45}b'", f"'*{'[a-z]' * 18}[^a]'",
    f"'{'[^b]*' * 19}b'", f"'{'_%' * 49}b'",
)  # fmt: skip
ORDERS = {
    "ascending": "i",
    "descending": "-i",
    "organ pipe": "abs(2 * i - {rows})",
    "shuffled": "i * 7919 % 1000003",
    "alternating": "CASE WHEN i % 2 THEN i ELSE -i END",
    "few values": "i % 7",
    "equal": "0",
    "fractions": "1.0 / i",
    "long texts": "printf('%.*c', 40000, 'a') || i",
    "texts": "printf('%.*c', 200, 'a') || (i * 7919 % 1000003)",
    "wide texts": "printf('%.*c', 100, char(233)) || (-i)",
}
FRAMES = (
    "",
    "ROWS BETWEEN 100 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 7000 PRECEDING AND 7000 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING EXCLUDE CURRENT ROW",
    "RANGE BETWEEN 1000 PRECEDING AND 1000 FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING EXCLUDE TIES",
    "GROUPS BETWEEN 100 PRECEDING AND 100 FOLLOWING EXCLUDE GROUP",
)
SORTS = {
    "sort": "SELECT i FROM n CROSS JOIN v ORDER BY {} LIMIT 1 OFFSET 5000",
    "DISTINCT": "SELECT count(*) FROM (SELECT DISTINCT {} FROM n CROSS JOIN v)",
    "GROUP BY": "SELECT max(c) FROM (SELECT count(*) c FROM n CROSS JOIN v GROUP BY {})",
    "UNION": "SELECT count(*) FROM (SELECT {0} FROM n, v UNION SELECT {0} FROM n, v)",
    "IN": "SELECT count(*) FROM n CROSS JOIN v WHERE {0} IN (SELECT {0} FROM n, v)",
    "window": "SELECT max(r) FROM (SELECT rank() OVER (ORDER BY {}) r FROM n, v)",
}
TABLE = "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 2), (2, 3), (3, 4), (4, 1)"
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {rows})"


class Case(NamedTuple):
    name: str
    sql: str


def arities() -> dict[str, list[int]]:
    """Return the numbers of arguments that each function of SQLite takes."""
    found: dict[str, list[int]] = {}
    with closing(apsw.Connection(":memory:")) as connection:
        for name, count in connection.execute("SELECT name, narg FROM pragma_function_list"):
            found.setdefault(name, []).extend([count] if count >= 0 else [1, 2, 2, 3, 3, 4, 16])
    return found


def calls(rng: random.Random, tries: int) -> Iterator[Case]:
    """Yield loops of 200 calls of each scalar function with random arguments."""
    rows, accepted = 200, arities()
    for name in SCALARS:
        if name in ("current_date", "current_time", "current_timestamp"):
            continue
        for _ in range(tries):
            texts = rng.sample(sorted(LONG), 3)
            arity = rng.choice(accepted[name])
            drawn = [rng.choice((*texts, *rng.sample(SHORT, 2))) for _ in range(arity)]
            if arity:
                drawn[rng.randrange(min(arity, 2))] = texts[0]
            # SQLite remembers the last JSON it read: a new text each time defeats that
            args = [f"{arg} || n.i" if rng.random() < 0.3 and arg in LONG else arg for arg in drawn]
            call = f"{name}({', '.join(args)})"
            if name in ("->", "->>"):
                call = f"({args[0]}) {name} {args[-1]}"
            # a row is a value too, so each text has a table of its own
            tables = "".join(
                f", {text} AS MATERIALIZED (SELECT {LONG[text]} AS {text})" for text in texts
            )
            joined = " CROSS JOIN ".join(texts)
            sql = f"SELECT count({call}) FROM n CROSS JOIN {joined}"
            numbers = NUMBERS.format(rows=rows)
            yield Case(f"{name}({', '.join(drawn)})", f"{numbers}{tables} {sql}")


def aggregates(rng: random.Random, tries: int) -> Iterator[Case]:
    """Yield each aggregate and window function over rows in random orders, forms and frames."""
    arguments = dict.fromkeys(AGGREGATES, "x") | dict.fromkeys(WINDOWS, "")
    arguments |= dict.fromkeys(("lag", "lead", "first_value", "last_value"), "x")
    arguments |= {"ntile": "3", "nth_value": "x, 5000", "json_group_object": "x, i"}
    arguments |= {"group_concat": "x, ','", "string_agg": "x, ','"}
    for name, args in arguments.items():
        for _ in range(tries):
            order, frame = rng.choice(sorted(ORDERS)), rng.choice(FRAMES)
            rows = 2_000 if order == "long texts" else rng.choice((20_000, 300_000, 1_000_000))
            keys = "i" if "RANGE" in frame else rng.choice(("i", "x", "i % 3, x"))
            over = f"{name}({args}) OVER (ORDER BY {keys} {frame})"
            forms = [over]
            if name in AGGREGATES:
                sort = rng.choice(("x", "x DESC", "x COLLATE NOCASE, i"))
                distinct = args if "," in args else f"DISTINCT {args} COLLATE NOCASE"
                forms += [f"{name}({distinct})", f"{name}({args} ORDER BY {sort})"]
            call = rng.choice(forms)
            group = "" if "OVER" in call else rng.choice(("", " GROUP BY x"))
            numbered = f"SELECT i, {ORDERS[order].format(rows=rows)} AS x FROM n"
            yield Case(
                f"{call}{group} of {rows:,} {order}",
                f"{NUMBERS.format(rows=rows)}, r AS ({numbered}) "
                f"SELECT max(length(y)) FROM (SELECT {call} AS y FROM r{group})",
            )


def statements() -> Iterator[Case]:
    """Yield statements whose cost is not in a function: sorting, hashing, joining, compiling."""
    for length, rows in ((40_000, 2_200), (1_000, 80_000), (100, 500_000), (0, 1_500_000)):
        numbers = f"{NUMBERS.format(rows=rows)}, v AS MATERIALIZED (SELECT "
        numbers += f"printf('%.*c', {length}, 'a') AS x)"
        for collation, (name, form) in product(("BINARY", "NOCASE"), SORTS.items()):
            keyed = form.format(f"(x || (i * 7919 % 1000003)) COLLATE {collation}")
            of = f"{rows:,} texts of {length:,} bytes, {collation}"
            yield Case(f"{name} of {of}", f"{numbers} {keyed}")
    for columns, rows in ((5, 1_400_000), (20, 900_000), (40, 500_000), (80, 250_000)):
        nulls = ", ".join(f"NULL AS a{number}" for number in range(columns))
        keys = ", ".join(f"a{number}" for number in range(columns))
        yield Case(
            f"sort of {rows:,} rows by {columns} equal columns and a number",
            f"{NUMBERS.format(rows=rows)}, v AS MATERIALIZED (SELECT {nulls}) "
            f"SELECT i FROM n CROSS JOIN v ORDER BY {keys}, i * 7919 % 1000003",
        )
    listed = ",".join(str(number * 7919 % 10007) for number in range(3_500))
    for name, sql in {
        "recursion that takes the smallest first": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i * 7919 % 1000003 + column1 FROM n, (VALUES (1), (2)) AS w ORDER BY 1 "
        "LIMIT 1000000) SELECT max(i) FROM n",
        "automatic index on long texts": f"{NUMBERS.format(rows=2000)}, t AS MATERIALIZED "
        "(SELECT i, printf('%.*c', 40000, 'a') || i AS x FROM n) "
        "SELECT count(*) FROM t a JOIN t b ON a.x = b.x AND a.i > b.i",
        "IN list": f"{NUMBERS.format(rows=1_000_000)} SELECT count(*) FROM n WHERE i IN ({listed})",
        "VALUES": "SELECT count(*) FROM (VALUES " + ",".join(["(1)"] * 4_900) + ")",
        "LIMIT at the end": NUMBERS.format(rows=10**9)
        + " SELECT i FROM n LIMIT 1 OFFSET 900000000",
        **compiling(),
    }.items():
        yield Case(name, sql)


def compiling() -> dict[str, str]:
    """Return statements that are expensive before they run. An alias of an alias is its square."""

    def doubled(levels: int, inner: str, operator: str = "+") -> str:
        return f"(SELECT f {operator} f AS f FROM " * levels + f"({inner})" + ")" * levels

    found, column = {}, "SELECT a AS f, b FROM t"
    for levels, count in product((8, 10, 12, 13), (2, 40, 90)):
        source, aliases = doubled(levels, column), f"{2**levels:,} aliases"
        terms = ", ".join(f"f + {number}" for number in range(count))
        sums = ", ".join(f"max(f + {number})" for number in range(count))
        ands = " AND ".join(f"max(f + {number}) > 0" for number in range(count))
        ors = " OR ".join(f"f = {number}" for number in range(count))
        found |= {
            f"{count} aggregates of {aliases}": f"SELECT {sums} FROM {source}",
            f"{count} HAVING of {aliases}": f"SELECT max(f) FROM {source} HAVING {ands}",
            f"{count} GROUP BY and ORDER BY of {aliases}": f"SELECT {terms} FROM {source} "
            f"GROUP BY {terms} ORDER BY {terms}",
            f"{count} OR of {aliases}": f"SELECT 1 FROM {source} WHERE {ors}",
        }
    many = ", ".join(f"max(f+{number})" for number in range(100, 1_600))
    for levels in (4, 6, 8):
        name = f"1,500 aggregates of {2**levels} aliases"
        found[name] = f"SELECT 1 IN ({many}) FROM {doubled(levels, column)}"
    windows = ", ".join(f"sum(a) OVER (ORDER BY b + {number})" for number in range(190))
    found["190 windows"] = f"SELECT {windows} FROM t"
    for tables, (name, operator) in product((16, 40, 64), (("equal", "="), ("less", "<"))):
        names = ", ".join(f"t a{number}" for number in range(tables))
        pairs = [f"a{i}.a {operator} a{i + 1}.b" for i in range(tables - 1)]
        pairs += [f"a{i}.b {operator} a{(i * 7 + 3) % tables}.a" for i in range(tables)]
        joined = f"SELECT 1 FROM {names} WHERE {' AND '.join(pairs[:95])} LIMIT 1"
        found[f"a join of {tables} tables, {name}"] = joined
    subqueries = " AND ".join(f"a IN (SELECT b FROM t WHERE a > {i})" for i in range(90))
    found["90 subqueries"] = f"SELECT count(*) FROM t WHERE {subqueries}"
    ctes = "WITH a0 AS (SELECT a AS x FROM t)" + "".join(
        f", a{i} AS (SELECT p.x FROM a{i - 1} p JOIN a{i - 1} q ON p.x = q.x)" for i in range(1, 8)
    )
    for depth in (4, 5, 6, 7):
        found[f"{2**depth} references of nested CTEs"] = f"{ctes} SELECT count(*) FROM a{depth}"
    cases = "CASE " + " ".join(f"WHEN a = {i} THEN b + {i}" for i in range(700)) + " END"
    found["60 natural joins"] = f"SELECT count(*) FROM {' NATURAL JOIN '.join(['t'] * 60)}"
    found["CASE of 700"] = f"SELECT {cases} FROM t"
    glued = doubled(12, "SELECT printf('%.*c', 40000, a) AS f FROM t", "=")
    return found | {"4,096 comparisons of long texts": f"SELECT f FROM {glued}"}


CLOCKS = {"current_date", "current_time", "current_timestamp"}
MOST_S = 4.0  # of CPU; the worst known takes 2.8 on a busy machine
SEED = 7


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(make_database(tmp_path / "t.sqlite", TABLE))


def test_every_allowed_function_is_called():
    scalars = list(calls(random.Random(SEED), 1))
    assert {case.name.partition("(")[0] for case in scalars} == set(SCALARS) - CLOCKS
    rows = list(aggregates(random.Random(SEED), 1))
    assert {re.split(r"\W", case.name)[0] for case in rows} == {*AGGREGATES, *WINDOWS}
    longest = max(statements(), key=lambda case: len(case.sql))
    assert len(longest.sql) <= SqlLimits().max_sql_bytes, longest.name


async def cpu_s(pool: SqlPool, database: str, case: Case) -> float:
    """Return the CPU-seconds that a statement takes its worker; infinite if it is killed."""
    clock = ~pids(pool)[0] << 3 | 2  # Linux: the CPU clock of another process
    began = time.clock_gettime(clock)
    result = await pool.run(SqlJob(JobKind.QUERY, database, case.sql, 1))
    killed = result.error_code == "sql_killed"
    return float("inf") if killed else time.clock_gettime(clock) - began


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU clock of another process")
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(partial(calls, random.Random(SEED), 1), id="scalar functions"),
        pytest.param(partial(aggregates, random.Random(SEED), 1), id="aggregates and windows"),
        pytest.param(statements, id="sorts, joins and compilation"),
    ],
)
def test_no_statement_takes_long(cases, database):
    async def run() -> dict[Case, float]:
        async with SqlPool(1) as pool:
            return {case: await cpu_s(pool, database, case) for case in cases()}

    found = asyncio.run(run())
    assert {case.sql: seconds for case, seconds in found.items() if seconds > MOST_S} == {}
