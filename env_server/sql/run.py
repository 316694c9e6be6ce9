"""Run SQL jobs in this process. SQLite, apsw and memory errors become a `SqlResult` only here."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import apsw

from env_server.sql.connection import Refused, SqlConnection, limit_heap
from env_server.sql.jobs import STOPPED, Cell, JobKind, Row, SqlJob, SqlResult
from env_server.sql.limits import (
    MAX_COLUMNS_NAMED,
    MAX_ERROR_CHARS,
    MAX_RESULT_BYTES,
    MAX_TABLES_NAMED,
    SqlLimits,
)
from shared.sqltext import join_names, quote_identifier, quote_text, sql_name

OUT_OF_MEMORY = "the query needs too much memory; make it simpler"
NO_COLUMN = "no such column: "  # how SQLite begins the error
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
CHECK_EVERY_S = 0.04  # of a deadline; an interrupt is at most twice as late
_ALL_ROWS = 10_000  # more than a table can have columns
# hidden 1: of a virtual table
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo({name}) WHERE hidden <> 1"
# A foreign key that names no column refers to the other table's primary key.
_REFERENCES = """
    SELECT k."from", k."table", coalesce(k."to", (
        SELECT c.name FROM pragma_table_info(k."table") c WHERE c.pk = k.seq + 1
    ), 'rowid') FROM pragma_foreign_key_list({name}) k ORDER BY k.id, k.seq
"""
# The connection of each kind of job; the others share a trusted one. Agents' statements have their
# own. SAMPLE is jailed because a view of the data may read the catalogue.
_JAILED = {JobKind.QUERY: "agent", JobKind.GOLD: "data set", JobKind.SAMPLE: "data set"}


class Deadline:
    """Interrupts the statements of this thread, from another, after `max_cpu_s` of CPU time.

    Call `new_job` before a job, and `watch` before and after each attempt at it. SQLite checks for
    an interrupt in every iteration of a loop, far more often than it counts steps: a thousand steps
    may be a thousand calls of an expensive function.
    """

    def __init__(self, max_cpu_s: float, asked_to_stop: Callable[[], bool]) -> None:
        self.max_cpu_s = max_cpu_s
        self._asked_to_stop = asked_to_stop
        self._lock = threading.Lock()
        self._connection: SqlConnection | None = None
        self._job = 0
        self._seen_job = 0
        self._seen_at = 0.0  # CPU seconds when the watching thread first saw the job
        # the CPU time of this thread alone, if the system measures it
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        clock = of_thread(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._clock_id: int = clock
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._check_often, daemon=True)
        self._thread.start()

    def new_job(self) -> None:
        self._job += 1

    def watch(self, connection: SqlConnection | None) -> None:
        """Watch the connection's statement from here, or none."""
        with self._lock:  # an interrupt must not reach the next job
            self._connection = connection

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _check_often(self) -> None:
        while not self._end.wait(CHECK_EVERY_S):
            self._check()

    def _check(self) -> None:
        """Interrupt the statement if its time is over, or if it was asked to stop."""
        with self._lock:
            connection = self._connection
            if connection is None:
                return
            if self._asked_to_stop():
                connection.exceeded = "stop"
                connection.raw.interrupt()
            now = time.clock_gettime(self._clock_id)
            if self._job != self._seen_job:
                self._seen_job, self._seen_at = self._job, now
            elif now - self._seen_at > self.max_cpu_s:
                connection.exceeded = "cpu"
                connection.raw.interrupt()


class SqlRunner:
    """Runs jobs in this process, one at a time, and keeps connections open. Not thread-safe."""

    def __init__(
        self, limits: SqlLimits | None = None, asked_to_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Limit SQLite's heap in this whole process, for connections that apsw opens.

        A job gives up with the error code `STOPPED` while `asked_to_stop()`.
        """
        self.limits = limits or SqlLimits()
        self._asked_to_stop = asked_to_stop
        limit_heap(self.limits.max_heap_bytes)
        self._deadline = Deadline(self.limits.max_cpu_s, asked_to_stop)
        self._open: OrderedDict[tuple[str, str], SqlConnection] = OrderedDict()

    def __enter__(self) -> "SqlRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: SqlJob) -> SqlResult:
        """Return a job's result, which also reports errors. `ValueError` for an unknown kind."""
        self._deadline.new_job()
        result = self._run_once(job)
        # other connections' caches count too, so the verdict needs an empty heap; the CPU time of
        # both attempts counts, or such a job would have twice the time of others
        if result.error == OUT_OF_MEMORY:
            self._close_connections()
            result = self._run_once(job)
            if result.error == OUT_OF_MEMORY:
                self._close_connections()
        return result

    def close(self) -> None:
        """Close every connection; no job can run any more."""
        self._close_connections()
        self._deadline.close()

    def _close_connections(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _run_once(self, job: SqlJob) -> SqlResult:
        try:
            return self._result(JobKind(job.kind), job)
        except apsw.Error as error:  # of opening a connection
            return SqlResult(error=_unreadable(error), error_code="db_error")
        except MemoryError:
            return SqlResult(error=OUT_OF_MEMORY, error_code="sql_budget")

    def _result(self, kind: JobKind, job: SqlJob) -> SqlResult:
        connection = self._connection(kind, job.db_path)
        if kind == JobKind.TABLES:
            return SqlResult(["name"], [(name,) for name in connection.tables])
        self._deadline.watch(connection)
        try:
            if kind == JobKind.DESCRIBE:
                return describe(connection, job.sql)
            if kind == JobKind.SAMPLE:
                return sample(connection, job.sql)
            default = self.limits.gold_rows if kind == JobKind.GOLD else None
            max_rows = default if job.max_rows is None else job.max_rows
            result = run_query(connection, job.sql, max_rows)
        finally:
            self._deadline.watch(None)
        if kind == JobKind.QUERY and (result.error or "").startswith(NO_COLUMN):
            described = self._connection(JobKind.DESCRIBE, job.db_path)
            hint = columns_hint(described, job.sql)
            return replace(result, error=f"{result.error}{hint}")
        return result

    def _connection(self, kind: JobKind, path: str) -> SqlConnection:
        key = (_JAILED.get(kind, "trusted"), path)
        connection = self._open.get(key)
        if connection is None:
            while len(self._open) >= self.limits.open_connections:
                self._open.popitem(last=False)[1].close()
            connection = self._open[key] = SqlConnection(
                path, self.limits, jailed=kind in _JAILED, asked_to_stop=self._asked_to_stop
            )
        self._open.move_to_end(key)
        return connection


def run_query(connection: SqlConnection, sql: str, max_rows: int | None = None) -> SqlResult:
    """Run one statement and return at most `max_rows` rows (default: `shown_rows`).

    The result holds errors of the statement; a fault of this package is raised. Close the
    connection if the error is `OUT_OF_MEMORY`.
    """
    connection.start(sql)
    cursor = connection.raw.cursor()
    limits = connection.limits
    max_rows = limits.shown_rows if max_rows is None else max_rows
    heap = apsw.memory_used() + limits.max_compile_bytes
    limit_heap(min(heap, limits.max_heap_bytes))  # until the statement is compiled
    try:
        connection.check()
        try:
            rows, truncated = _take(cursor.execute(sql), max_rows, limits.max_result_bytes)
        except UnicodeDecodeError:
            cursor.close(True)
            cursor = connection.raw.cursor()
            rows, truncated = _take_broken_text(connection, cursor, max_rows)
    except Exception as error:
        message, code = _explain(error, connection)
        return SqlResult(error=message, error_code=code, vm_steps=connection.vm_steps)
    finally:
        limit_heap(limits.max_heap_bytes)
        cursor.close(True)
    columns, steps, reads = connection.columns, connection.vm_steps, connection.reads_data
    return SqlResult(columns, rows, truncated, vm_steps=steps, reads_data=reads)


def describe(connection: SqlConnection, table: str) -> SqlResult:
    """Return a table's columns as rows, and its number of rows.

    A row is (name, declared type or "", 1 if in the primary key, "table.column" or None).
    """
    name = quote_text(table)
    columns = run_query(connection, _COLUMNS.format(name=name), _ALL_ROWS)
    if columns.error is None and not columns.rows:
        error = f"no such table: {table}; {tables_hint(connection.tables)}"
        return SqlResult(error=error, error_code="no_such_table")
    keys = run_query(connection, _REFERENCES.format(name=name), _ALL_ROWS)
    count = run_query(connection, f"SELECT count(*) FROM {quote_identifier(table)}", 1)
    for result in (columns, keys, count):
        if result.error is not None:
            return result
    references = {
        str(column).lower(): f"{sql_name(str(parent))}.{sql_name(str(key))}"
        for column, parent, key in reversed(keys.rows)
    }
    rows: list[Row] = [
        (column, kind, int(bool(pk)), references.get(str(column).lower()))
        for column, kind, pk in columns.rows
    ]
    return SqlResult(
        ["column", "type", "is_key", "references"],
        rows,
        vm_steps=columns.vm_steps + keys.vm_steps + count.vm_steps,
        row_count=count.rows[0][0],  # type: ignore[arg-type]
    )


def sample(connection: SqlConnection, table: str) -> SqlResult:
    """Return a table's first rows in stored order."""
    # NOT INDEXED: a covering index has a different order from the table
    statement = f"SELECT * FROM {quote_identifier(table)} NOT INDEXED"
    result = run_query(connection, statement, connection.limits.sample_rows)
    result.truncated = False  # a sample is not a cut result
    return result


def _take(rows: Iterator[Row], max_rows: int, max_bytes: int) -> tuple[list[Row], bool]:
    """Return the first rows, and whether there are more."""
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
    rows, truncated = _take(statement, max_rows, connection.limits.max_result_bytes)
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
        return _unreadable(error), "db_error"
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


def columns_hint(trusted: SqlConnection, sql: str) -> str:
    """Return '; the columns are a(id, name), b(id)' of the tables that `sql` names, in its order.

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
        columns = run_query(trusted, _COLUMNS.format(name=quote_text(table)), MAX_COLUMNS_NAMED)
        if columns.error == OUT_OF_MEMORY:
            raise MemoryError
        if columns.rows:
            more = ", ..." if columns.truncated else ""
            names = join_names(str(name) for name, *_ in columns.rows)
            lists.append(f"{sql_name(table)}({names}{more})")
    text = ", ".join(lists)
    if len(text) > MAX_RESULT_BYTES:
        text = text[:MAX_RESULT_BYTES] + "..."
    return f"; the columns are {text}" if text else ""


def _unreadable(error: Exception) -> str:
    """Return the text of a db_error, without SQLite's own text if that may contain a path."""
    text = _one_line(error)
    detail = "" if "/" in text else f", {text}"
    return f"the database can't be read: {type(error).__name__}{detail}"
