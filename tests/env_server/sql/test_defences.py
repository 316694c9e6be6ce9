"""Each defence of a connection alone: the others are switched off, so that none hides its loss."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql import sandbox as module
from env_server.sql.run import SqlRunner
from env_server.sql.sandbox import SqlConnection
from env_server.sql.statement import run_query
from tests.conftest import make_database

SCRIPT = "CREATE TABLE t (a); INSERT INTO t VALUES (1), (2); CREATE TABLE u (b);"
WRITES = [
    "DELETE FROM t",
    "DELETE FROM t RETURNING a",
    "INSERT INTO t VALUES (3)",
    "UPDATE t SET a = 0",
    "DROP TABLE t",
    "CREATE TABLE x (y)",
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(make_database(tmp_path / "d.sqlite", SCRIPT))


@pytest.fixture
def jailed(path: str) -> Iterator[SqlConnection]:
    connection = SqlConnection(path, SqlLimits())
    yield connection
    connection.close()


@pytest.fixture
def writable(path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlConnection]:
    """A jailed connection without the read-only file."""
    monkeypatch.setattr(module, "_open", apsw.Connection)
    connection = SqlConnection(path, SqlLimits())
    yield connection
    connection.close()


def freed(connection: SqlConnection) -> apsw.Connection:
    """Return the bare connection without its authorizer and its check of statements."""
    connection.raw.authorizer = None
    connection.raw.exec_trace = None
    return connection.raw


def content(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


# -- writes: the read-only file, the authorizer, the check of statements


@pytest.mark.parametrize("write", WRITES)
def test_the_file_alone_stops_a_write(jailed, path, write):
    before = content(path)
    with pytest.raises(apsw.ReadOnlyError):
        freed(jailed).execute(write).fetchall()
    assert content(path) == before


@pytest.mark.parametrize("write", WRITES)
def test_the_authorizer_alone_stops_a_write(writable, path, write):
    before = content(path)
    writable.raw.exec_trace = None
    with pytest.raises(apsw.AuthError):
        writable.raw.execute(write).fetchall()
    assert writable.denied
    assert content(path) == before


@pytest.mark.parametrize("write", WRITES)
def test_the_check_of_statements_alone_stops_a_write(writable, path, write):
    before = content(path)
    writable.raw.authorizer = None
    result = run_query(writable, write)
    assert (result.error_code, result.rows) == ("sql_denied", [])
    assert content(path) == before


def test_a_write_without_any_defence_succeeds(writable, path):
    """The tests above would pass on writes that fail anyway."""
    before = content(path)
    for write in WRITES:
        freed(writable).execute(write).fetchall()
    assert content(path) != before


# -- other schemas: no database can be attached, the authorizer allows `main` alone


def other_schemas(connection: SqlConnection, other: Path) -> None:
    """Add tables named like the data's in two other schemas, as no agent can."""
    authorizer, trace = connection.raw.authorizer, connection.raw.exec_trace
    bare = freed(connection)
    bare.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)
    bare.execute("CREATE TEMP TABLE t (a); INSERT INTO temp.t VALUES ('temporary')").close()
    bare.execute(f"ATTACH '{make_database(other, SCRIPT)}' AS o").close()
    bare.authorizer, bare.exec_trace = authorizer, trace


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM temp.t",
        "SELECT a FROM o.t",
        "SELECT o.t.a FROM o.t",
        "SELECT a FROM t",  # a temporary table hides the data's
        "SELECT count(x.a) FROM main.t, temp.t AS x WHERE x.a = 'temporary'",
        'SELECT a FROM "TEMP"."T"',
        "WITH x AS (SELECT a FROM o.t) SELECT * FROM x",
        "SELECT 1 FROM main.t WHERE a IN o.t",
    ],
)
def test_the_authorizer_alone_hides_other_schemas(jailed, tmp_path, sql):
    other_schemas(jailed, tmp_path / "other.sqlite")
    result = run_query(jailed, sql)
    assert (result.error_code, result.rows) == ("sql_denied", [])
    assert run_query(jailed, "SELECT a FROM main.t").rows == [(1,), (2,)]


def test_the_limit_alone_attaches_nothing(jailed, tmp_path):
    with pytest.raises(apsw.SQLError, match="too many attached"):
        freed(jailed).execute(f"ATTACH '{tmp_path / 'new'}' AS o").close()
    assert not (tmp_path / "new").exists()


# -- several statements: what follows the first, and that each begins the text

SEVERAL = ["SELECT 1; SELECT 2", "SELECT 1;SELECT 1", "SELECT 1; /* ; */ VALUES (3)"]


@pytest.mark.parametrize("sql", SEVERAL)
def test_what_follows_a_statement_alone_is_refused(jailed, sql, monkeypatch):
    class Prefixed(str):
        def startswith(self, *_: Any) -> bool:
            return True

    assert run_query(jailed, Prefixed(sql)).error_code == "sql_denied"


@pytest.mark.parametrize("sql", [SEVERAL[0], SEVERAL[2]])
def test_a_second_statement_alone_is_refused(jailed, sql, monkeypatch):
    monkeypatch.setattr(module, "_AFTER_STATEMENT", re.compile(".*", re.DOTALL))
    result = run_query(jailed, sql)
    assert (result.error_code, result.rows) == ("sql_denied", [])
    assert "several statements" in str(result.error)


# -- the gold: its own connection


def test_gold_queries_and_samples_have_a_connection_without_agents_statements(path):
    def run(kind: JobKind, sql: str) -> SqlResult:
        return runner.run(SqlJob(kind, path, sql))

    with SqlRunner() as runner:
        assert run(JobKind.QUERY, "SELECT a FROM t").rows == [(1,), (2,)]
        [agents] = runner._open.values()
        bare = freed(agents)
        bare.execute("CREATE TEMP TABLE t (a); INSERT INTO temp.t VALUES (9)").close()
        assert run(JobKind.QUERY, "SELECT a FROM t").rows == [(9,)], "the agent's own is changed"
        assert run(JobKind.GOLD, "SELECT a FROM t").rows == [(1,), (2,)]
        assert run(JobKind.SAMPLE, "t").rows == [(1,), (2,)]
        assert run(JobKind.DESCRIBE, "t").row_count == 2
        assert run(JobKind.QUERY, "SELECT a FROM t").rows == [(9,)], "and was not opened again"


# -- functions: the authorizer's list


def test_every_function_that_is_not_listed_is_denied(path):
    """Of all that this SQLite has, also those that nobody thought of."""
    functions = apsw.Connection("").execute("SELECT name, abs(narg) FROM pragma_function_list")
    others = [(name, n) for name, n in functions if name not in SqlLimits().functions]
    assert {"load_extension", "random", "unhex", "zeroblob"} <= {name for name, _ in others}
    with SqlRunner() as runner:
        for name, n in others:
            sql = f'SELECT "{name}"({", ".join("a" * n)}) FROM t'
            result = runner.run(SqlJob(JobKind.QUERY, path, sql))
            assert result.error_code == "sql_denied", (sql, result)
