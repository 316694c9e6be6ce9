"""A statement -> its result. Every error of SQLite, apsw and memory becomes a `SqlResult` here and
nowhere else."""

import re
from collections.abc import Iterator
from itertools import islice

import apsw

from env_server.sql.connection import Refused, SqlConnection
from env_server.sql.jobs import Cell, Row, SqlResult
from env_server.sql.limits import MAX_ERROR_CHARS, MAX_TABLES_NAMED, SqlPolicy

OUT_OF_MEMORY = "the query needs too much memory; make it simpler"

_TOO_BIG = re.compile(
    r"too many|too large|too big|too long|too complex|too deep|overflow|at most \d+ tables",
    re.IGNORECASE,
)
_NO_SUCH_TABLE = re.compile(r"no such table: ")
_DATA_ERRORS = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.CantOpenError,
    apsw.IOError,
    apsw.PermissionsError,
)


def run_query(
    connection: SqlConnection, sql: str, policy: SqlPolicy, max_rows: int | None = None
) -> SqlResult:
    """The result of one statement, at most `max_rows` rows of it (`policy.shown_rows` by default).
    Never raises.

    Where memory ran out, `error_code` is sql_budget and `out_of_memory(result)` is true: close the
    connection then.
    """
    connection.start(sql)
    cursor = connection.raw.cursor()
    max_rows = policy.shown_rows if max_rows is None else max_rows
    try:
        connection.check()
        try:
            rows, truncated = _take(cursor.execute(sql), max_rows, policy.max_result_bytes)
        except UnicodeDecodeError:
            cursor.close(True)
            cursor = connection.raw.cursor()
            rows, truncated = _take_broken_text(connection, cursor, max_rows)
    except Exception as error:
        message, code = _explain(error, connection)
        return SqlResult(error=message, error_code=code, vm_steps=connection.vm_steps)
    finally:
        cursor.close(True)
    return SqlResult(
        connection.columns, rows, truncated, None, None, connection.vm_steps, connection.reads
    )


def out_of_memory(result: SqlResult) -> bool:
    return result.error == OUT_OF_MEMORY


def _take(rows: Iterator[Row], max_rows: int, max_bytes: int) -> tuple[list[Row], bool]:
    """-> rows, and whether there are more of them."""
    taken: list[Row] = []
    size = 0
    for row in islice(rows, max_rows + 1):
        for cell in row:
            if isinstance(cell, (str, bytes)):
                size += len(cell)
        if len(taken) == max_rows or (size > max_bytes and taken):
            return taken, True
        if size > max_bytes:
            raise apsw.TooBigError(f"a row of the result is too big: over {max_bytes:,} bytes")
        taken.append(row)
    return taken, False


def _take_broken_text(
    connection: SqlConnection, cursor: apsw.Cursor, max_rows: int
) -> tuple[list[Row], bool]:
    """As `_take`, where some text is not UTF-8: what can't be read becomes U+FFFD.

    apsw decodes strictly, which is the fast way; so the statement is run again with its text cast
    to bytes. A tag in front tells text from blobs. The name is none that a table has, which it
    would hide; the line end and the empty comment end a comment that the statement leaves open.
    """
    columns = connection.columns
    name = "q" + "_" * max(map(len, [*connection.tables, ""]))
    body = connection.statement.rstrip().removesuffix(";")
    names = [f"c{i}" for i in range(len(columns))]
    casts = [
        f"CASE typeof({n}) WHEN 'text' THEN CAST('t'||{n} AS BLOB) WHEN 'blob' THEN CAST('b'||{n} AS BLOB) ELSE {n} END"
        for n in names
    ]
    connection.sql = (
        f"WITH {name}({','.join(names)}) AS ({body}\n/**/) SELECT {','.join(casts)} FROM {name}"
    )
    rows, truncated = _take(
        cursor.execute(connection.sql), max_rows, connection.policy.max_result_bytes
    )
    connection.columns = columns
    return [tuple(_untag_bytes(cell) for cell in row) for row in rows], truncated


def _untag_bytes(cell: Cell) -> Cell:
    if not isinstance(cell, bytes):
        return cell
    return cell[1:].decode(errors="replace") if cell[:1] == b"t" else cell[1:]


def _explain(error: Exception, connection: SqlConnection) -> tuple[str, str]:
    """-> (one line for the agent, error code)."""
    policy = connection.policy
    text = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    if isinstance(error, Refused):
        return text, "sql_denied"
    if connection.denied is not None:
        return connection.denied, "sql_denied"
    if connection.over is not None or isinstance(error, apsw.InterruptError):
        # the same text for all of them
        return "the query takes too much work; make it simpler", "sql_budget"
    if isinstance(error, (MemoryError, apsw.NoMemError, apsw.FullError)):
        return OUT_OF_MEMORY, "sql_budget"
    if isinstance(error, apsw.TooBigError) and not text.startswith("a row"):
        if len(connection.sql.encode(errors="replace")) > policy.max_sql_bytes:
            return f"the query is over {policy.max_sql_bytes:,} bytes long", "sql_budget"
        return f"a value in the query is over {policy.max_length_bytes:,} bytes long", "sql_budget"
    if isinstance(error, _DATA_ERRORS):
        return unreadable(error), "db_error"
    if isinstance(error, apsw.BindingsError):
        return "parameters can't be bound: write the values into the query", "sql_error"
    if isinstance(error, UnicodeError):
        return "the query or its result holds text that is not Unicode", "sql_error"
    if isinstance(error, (apsw.Error, ValueError)):
        if isinstance(error, apsw.SQLError) and _NO_SUCH_TABLE.match(text):
            return f"{text}; {tables_hint(connection.tables)}", "no_such_table"
        return text, "sql_budget" if _TOO_BIG.search(text) else "sql_error"
    raise error


def tables_hint(tables: list[str]) -> str:
    """'the tables are a, b, c', for an error about a table's name."""
    more = ", ..." if len(tables) > MAX_TABLES_NAMED else ""
    return f"the tables are {', '.join(tables[:MAX_TABLES_NAMED])}{more}"


def unreadable(error: Exception) -> str:
    """The text of a db_error. SQLite's own is left out where it may name a path."""
    text = " ".join(str(error).split())[:MAX_ERROR_CHARS]
    return f"the database can't be read: {type(error).__name__}" + (
        f", {text}" if "/" not in text else ""
    )
