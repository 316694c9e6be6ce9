"""Jailed connections: SQLite's own virtual tables can't be read in any way, and trim() with two
arguments gives what SQLite's gives, in one pass."""

from collections.abc import Iterator

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.sql import JobKind, SqlJob
from env_server.sql.connection import is_virtual_table, register_trim, trim
from env_server.sql.jobs import Cell
from env_server.sql.run import SqlRunner
from tests.conftest import make_database

# Eponymous virtual tables of SQLite's sources, in this build or not.
NAMES = [
    "bytecode", "carray", "completion", "dbstat", "fsdir", "fts3tokenize", "generate_series",
    "json_each", "json_tree",
    "jsonb_each", "jsonb_tree", "pragma_database_list", "pragma_module_list", "sqlite_dbpage",
    "sqlite_schema",
    "sqlite_stmt", "tables_used", "wholenumber",
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
def test_a_virtual_table_cannot_be_read(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    path = make_database(
        tmp_path_factory.getbasetemp() / "builtin.sqlite", "CREATE TABLE IF NOT EXISTS t (x)"
    )
    with SqlRunner() as runner:
        for way in WAYS:
            for spelt in (name, name.upper(), f'"{name}"'):
                result = runner.run(SqlJob(JobKind.QUERY, str(path), way.format(spelt)))
                assert (
                    result.rows,
                    result.error_code in ("sql_denied", "no_such_table", "sql_error"),
                ) == ([], True)


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


def test_tables_and_expressions_of_such_a_name_work(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = make_database(
        tmp_path_factory.mktemp("named") / "d.sqlite",
        "CREATE TABLE carray (value); INSERT INTO carray VALUES (7);",
    )
    with SqlRunner() as runner:

        def rows(sql: str) -> list[tuple[object, ...]]:
            return list(runner.run(SqlJob(JobKind.QUERY, str(path), sql)).rows)

        assert (
            rows("SELECT value FROM carray")
            == rows("SELECT a.value FROM carray a JOIN carray USING (value)")
            == [(7,)]
        )
        assert rows("SELECT count(*) FROM carray") == [(1,)]
        assert rows("WITH t AS (VALUES (1), (2)) SELECT count(*) FROM t") == [(2,)]


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


def test_trim_of_long_texts_takes_one_pass() -> None:
    """SQLite's own takes 150 million comparisons for these."""
    text, characters = "b" * 50_000, "".join(map(chr, range(0x4E00, 0x4E00 + 3_000))) + "b"
    seen = 0

    class Counting(str):
        def __getitem__(self, index: object) -> str:
            nonlocal seen
            seen += 1
            return super().__getitem__(index)  # type: ignore[index]

    assert trim(Counting(text), characters, True, True) == ""
    assert seen <= len(text) + 1
