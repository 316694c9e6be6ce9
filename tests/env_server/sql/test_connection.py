"""Jailed connections: SQLite's own virtual tables can't be read in any way, and trim() with two
arguments gives what SQLite's gives."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.sql.connection import is_virtual_table, register_trim
from env_server.sql.jobs import Cell
from env_server.sql.run import SqlRunner
from tests.conftest import make_database
from tests.env_server.sql.conftest import query

# Eponymous virtual tables of SQLite's sources, in this build or not.
NAMES = [
    "bytecode", "carray", "completion", "dbstat", "fsdir", "fts3tokenize", "generate_series",
    "json_each", "json_tree", "jsonb_each", "jsonb_tree", "pragma_database_list",
    "pragma_module_list", "sqlite_dbpage", "sqlite_schema", "sqlite_stmt", "tables_used",
    "wholenumber",
]  # fmt: skip
WAYS = [
    "SELECT * FROM {}",
    "SELECT count(*) FROM {}",
    "SELECT 1 FROM {}('[1]')",
    "WITH g(value) AS (VALUES (1)) SELECT g.value FROM g NATURAL JOIN {}",
    "WITH g(value, name) AS (VALUES (1, 2)) SELECT g.value FROM g JOIN {}('[1]') USING (value)",
    "WITH g(value, name) AS (VALUES (1, 2)) SELECT 1 FROM g JOIN {} USING (name)",
    "SELECT (SELECT count(*) FROM main.{})",
    "SELECT 1 WHERE 1 IN {}",
]
TEXT = st.text(alphabet="ab é日\U0001f600\0\t 0.-", max_size=12)
VALUES = st.one_of(
    st.none(),
    TEXT,
    TEXT.map(str.encode),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=6),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_virtual_table_cannot_be_read(runner: SqlRunner, shop: str, name: str) -> None:
    for way, spelt in product(WAYS, (name, name.upper(), f'"{name}"')):
        result = query(runner, shop, way.format(spelt))
        assert result.rows == []
        assert result.error_code in ("sql_denied", "no_such_table", "sql_error")


def test_every_module_that_needs_no_create_is_seen() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("SELECT * FROM json_each('[]')").close()
    modules = [name for (name,) in connection.execute("PRAGMA module_list")]
    assert "json_each" in modules
    for name in modules:
        try:
            connection.execute(f'EXPLAIN SELECT * FROM "{name}"').close()
        except apsw.SQLError:
            continue
        assert is_virtual_table(name)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT value FROM carray", [(7,)]),
        ("SELECT a.value FROM carray a JOIN carray USING (value)", [(7,)]),
        ("SELECT count(*) FROM carray", [(1,)]),
        ("WITH t AS (VALUES (1), (2)) SELECT count(*) FROM t", [(2,)]),
    ],
)
def test_a_table_of_such_a_name_can_be_read(
    runner: SqlRunner, tmp_path: Path, sql: str, rows: list[object]
) -> None:
    script = "CREATE TABLE carray (value); INSERT INTO carray VALUES (7);"
    assert query(runner, make_database(tmp_path / "d.sqlite", script), sql).rows == rows


@pytest.fixture(scope="module")
def connections() -> Iterator[tuple[apsw.Connection, apsw.Connection]]:
    ours, sqlites = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    register_trim(ours)
    yield ours, sqlites
    ours.close()
    sqlites.close()


@given(value=VALUES, characters=VALUES)
@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim"])
def test_trim_is_sqlites(
    connections: tuple[apsw.Connection, apsw.Connection], name: str, value: Cell, characters: Cell
) -> None:
    sql = f"SELECT r, typeof(r) FROM (SELECT {name}(?, ?) AS r)"
    ours, sqlites = (connection.execute(sql, (value, characters)).get for connection in connections)
    assert ours == sqlites
