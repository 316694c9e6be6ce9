"""Run one statement on a connection, and explain its error in one line for the agent."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice

import apsw

from env_server.sql.jobs import STOPPED, Cell, Row, SqlResult
from env_server.sql.limits import (
    MAX_COLUMNS_NAMED,
    MAX_ERROR_CHARS,
    MAX_RESULT_BYTES,
    MAX_TABLES_NAMED,
)
from env_server.sql.sandbox import Refused, SqlConnection, limit_heap
from shared.sqltext import join_names, quote_text, sql_name

OUT_OF_MEMORY = "the query needs too much memory; make it simpler"
NEXT_HINT, TABLES_HINT = "; ", "; the tables are "  # between the parts of an error
NO_COLUMN, TOO_WIDE = "no such column: ", "too many columns"  # how SQLite begins these errors
TOO_LONG_TO_COMPILE = "the query is too complex; use fewer nested or repeated expressions"

# How SQLite's texts about its limits begin. Elsewhere in a text such words may be the agent's.
_TOO_BIG = re.compile(
    r"too many |more than \d+ |at most \d+ tables|parser stack overflow|Recursion limit|"
    r"Expression tree is too large|LIKE or GLOB pattern too complex|"
    r"VIEWs and/or subqueries nested too deep|a row of the result is too big"
)
_DATA_ERRORS = (
    apsw.CorruptError, apsw.NotADBError, apsw.CantOpenError, apsw.IOError, apsw.PermissionsError,
)  # fmt: skip
ALL_ROWS = 10_000  # more than a table can have columns
# hidden 1: of a virtual table
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo({name}) WHERE hidden <> 1"


class LookupStopped(Exception):
    """The worker was asked to stop: the job must run again, or its remarks would depend on load."""


def check_lookup(result: SqlResult) -> None:
    """Raise `LookupStopped`, or `MemoryError`, if a look-up ended for a reason outside of it."""
    if result.error_code == STOPPED:
        raise LookupStopped
    if result.error == OUT_OF_MEMORY:
        raise MemoryError


def run_query(
    connection: SqlConnection,
    sql: str,
    max_rows: int | None = None,
    *,
    max_vm_steps: int | None = None,
    read_rows: int = 0,
) -> SqlResult:
    """Run one statement and return at most `max_rows` rows (default: `shown_rows`).

    `max_vm_steps` (default: that of the limits) bounds its work. `read_rows` rows are read, if
    there are so many and their cells are within the limit, so that an error in one does not depend
    on `max_rows`. The result holds errors of the statement; a fault of this package is raised.
    Close the connection if the error is `OUT_OF_MEMORY`.
    """
    connection.start(sql, max_vm_steps)
    cursor = connection.raw.cursor()
    limits = connection.limits
    max_rows = limits.shown_rows if max_rows is None else max_rows
    heap = apsw.memory_used() + limits.max_compile_bytes
    limit_heap(min(heap, limits.max_heap_bytes))  # until the statement is compiled
    try:
        connection.check()
        try:
            rows, truncated = _take(connection, cursor.execute(sql), max_rows, read_rows)
        except UnicodeDecodeError:
            cursor.close(True)
            cursor = connection.raw.cursor()
            rows, truncated = _take_broken_text(connection, cursor, max_rows, read_rows)
    except Exception as error:
        message, code = _explain(error, connection)
        return SqlResult(error=message, error_code=code, vm_steps=connection.vm_steps)
    finally:
        limit_heap(limits.max_heap_bytes)
        cursor.close(True)
    columns, steps, reads = connection.columns, connection.vm_steps, connection.reads_data
    return SqlResult(columns, rows, truncated, vm_steps=steps, reads_data=reads)


def _take(
    connection: SqlConnection, rows: Iterator[Row], max_rows: int, read_rows: int
) -> tuple[list[Row], bool]:
    """Return the first rows, and whether there are more; read `read_rows`, and one more."""
    if read_rows:
        most = connection.limits.max_result_cells // max(1, len(connection.columns))
        read_rows = min(read_rows, most)
        max_rows = min(max_rows, read_rows)
    taken, truncated = _first(rows, max_rows, connection.limits.max_result_bytes)
    deque(islice(rows, max(0, read_rows - len(taken))), maxlen=0)
    return taken, truncated


def _first(rows: Iterator[Row], max_rows: int, max_bytes: int) -> tuple[list[Row], bool]:
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
    connection: SqlConnection, cursor: apsw.Cursor, max_rows: int, read_rows: int
) -> tuple[list[Row], bool]:
    """Return what `_take` does, with U+FFFD for text that is not UTF-8.

    apsw decodes strictly, so the statement runs again with its text cast to bytes; a prefix
    distinguishes text from blobs. No table has the name of the WITH table; the line end and the
    empty comment close a comment that the statement leaves open.
    """
    columns = connection.columns
    name = "q" + "_" * max(map(len, [*connection.tables, ""]))
    body = connection.statement.rstrip().removesuffix(";")
    names = [f"c{i}" for i in range(len(columns))]
    casts = [
        f"CASE typeof({n}) WHEN 'text' THEN CAST('t'||{n} AS BLOB) "
        f"WHEN 'blob' THEN CAST('b'||{n} AS BLOB) ELSE {n} END"
        for n in names
    ]
    query = f"{name}({','.join(names)}) AS ({body}\n/**/)"
    connection.sql = f"WITH {query} SELECT {','.join(casts)} FROM {name}"
    with connection.longer_statement():
        statement = cursor.execute(connection.sql)
    rows, truncated = _take(connection, statement, max_rows, read_rows)
    connection.columns = columns

    def read(cell: Cell) -> Cell:
        if not isinstance(cell, bytes):
            return cell
        return cell[1:].decode(errors="replace") if cell[:1] == b"t" else cell[1:]

    return [tuple(map(read, row)) for row in rows], truncated


def _explain(error: Exception, connection: SqlConnection) -> tuple[str, str]:
    """Return (one line for the agent, error code)."""
    limits, text = connection.limits, _one_line(error)
    if isinstance(error, Refused):
        return text, "sql_denied"
    if connection.denied is not None:
        return connection.denied, "sql_denied"
    if connection.exceeded == "stop":
        return "stopped", STOPPED
    if connection.exceeded is not None or isinstance(error, apsw.InterruptError):
        # one text for all limits, as CPU time depends on the machine
        return "the query takes too much work; make it simpler", "sql_budget"
    if isinstance(error, (MemoryError, apsw.NoMemError, apsw.FullError)):
        return OUT_OF_MEMORY if connection.compiled else TOO_LONG_TO_COMPILE, "sql_budget"
    if isinstance(error, apsw.TooBigError) and not text.startswith("a row"):
        if len(connection.sql.encode(errors="replace")) > limits.max_sql_bytes:
            return f"the query is over {limits.max_sql_bytes:,} bytes long", "sql_budget"
        return f"a value in the query is over {limits.max_length_bytes:,} bytes long", "sql_budget"
    if isinstance(error, _DATA_ERRORS):
        return unreadable(error), "db_error"
    if isinstance(error, apsw.BindingsError):
        return "parameters can't be bound: write the values into the query", "sql_error"
    if isinstance(error, UnicodeError):
        return "the query or its result holds text that is not Unicode", "sql_error"
    if isinstance(error, (apsw.Error, ValueError)):
        if isinstance(error, apsw.SQLError) and text.startswith("no such table: "):
            return f"{text}; {tables_hint(connection.tables)}", "no_such_table"
        return text, "sql_budget" if _TOO_BIG.match(text) else "sql_error"
    raise error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_ERROR_CHARS]


def tables_hint(tables: list[str]) -> str:
    """Return 'the tables are a, b, c', for an error about a table's name."""
    more = ", ..." if len(tables) > MAX_TABLES_NAMED else ""
    return f"the tables are {join_names(tables[:MAX_TABLES_NAMED])}{more}"


def columns_of(trusted: SqlConnection, table: str, most: int = ALL_ROWS) -> SqlResult:
    """Return a table's columns as rows (name, type, place in the primary key), or an error of a
    view's; `MemoryError` if the memory runs out."""
    found = run_query(trusted, _COLUMNS.format(name=quote_text(table)), most)
    if found.error == OUT_OF_MEMORY:
        raise MemoryError
    return found


def columns_hint(trusted: SqlConnection, sql: str) -> str:
    """Return 'the columns are a(id, name), b(id)' of the tables that `sql` names, in its order.

    Empty if it names none, or only views that can't be read. A column called like a table counts as
    naming it. Raises `MemoryError`.
    """
    found = {
        table: re.search(rf"(?<!\w){re.escape(table)}(?!\w)", sql, re.IGNORECASE)
        for table in trusted.tables
    }
    named = sorted((match.start(), table) for table, match in found.items() if match)
    lists = []
    for _, table in named[:MAX_TABLES_NAMED]:
        columns = columns_of(trusted, table, MAX_COLUMNS_NAMED)
        if columns.rows:
            more = ", ..." if columns.truncated else ""
            names = join_names(str(name) for name, *_ in columns.rows)
            lists.append(f"{sql_name(table)}({names}{more})")
    text = ", ".join(lists)
    if len(text) > MAX_RESULT_BYTES:
        text = text[:MAX_RESULT_BYTES] + "..."
    return f"the columns are {text}" if text else ""


def unreadable(error: Exception) -> str:
    """Return the text of a db_error, without SQLite's own text if that may contain a path."""
    text = _one_line(error)
    detail = "" if "/" in text else f", {text}"
    return f"the database can't be read: {type(error).__name__}{detail}"
