"""Run SQL jobs in this process. SQLite, apsw and memory errors become a `SqlResult` only here."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import apsw

from env_server.sql.describe_values import column_values
from env_server.sql.jobs import STOPPED, JobKind, Row, SqlJob, SqlResult
from env_server.sql.limits import SqlLimits
from env_server.sql.misread_texts import misread_columns
from env_server.sql.remedies import remedy_of
from env_server.sql.sandbox import SqlConnection, limit_heap
from env_server.sql.statement import (
    ALL_ROWS,
    NEXT_HINT,
    NO_COLUMN,
    OUT_OF_MEMORY,
    TABLES_HINT,
    TOO_WIDE,
    LookupStopped,
    columns_hint,
    columns_of,
    run_query,
    tables_hint,
    unreadable,
)
from shared.sqltext import quote_identifier, quote_text, sql_name

CHECK_EVERY_S = 0.04  # of a deadline; an interrupt is at most twice as late
# A foreign key that names no column refers to the other table's primary key.
_REFERENCES = """
    SELECT k."from", k."table", coalesce(k."to", (
        SELECT c.name FROM pragma_table_info(k."table") c WHERE c.pk = k.seq + 1
    ), 'rowid') FROM pragma_foreign_key_list({name}) k ORDER BY k.id, k.seq
"""
# The connection of each kind of job; the others share a trusted one. Agents' statements have their
# own. SAMPLE is jailed because a view of the data may read the catalogue.
_JAILED = {
    JobKind.QUERY: "agent",
    JobKind.GOLD: "data set",
    JobKind.SAMPLE: "data set",
    JobKind.VALUES: "data set",
}
MAX_STATEMENT_CHARS = 2_000  # a longer statement has no remarks
_TEXTS = re.compile(r"'(?:[^']|'')*'")
_QUOTED_OUTPUT = re.compile(
    r"""(?:\bSELECT\b(?:(?!\bFROM\b)[^"])*|\b(?:GROUP|ORDER)\s+BY\b[^"]*)\"""", re.IGNORECASE
)
_ORDERS = re.compile(r"[<>]|\b(?:ORDER|BETWEEN|MIN|MAX|SUM|AVG)\b", re.IGNORECASE)
EXPLAINABLE = ("sql_error", "no_such_table")  # errors that may have a remedy


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
            with self._lock:
                if self._connection is not None:
                    self._check(self._connection)

    def _check(self, connection: SqlConnection) -> None:
        """Interrupt the statement if its time is over, or if it was asked to stop."""
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
        """Limit SQLite's heap in this whole process. Jobs give up while `asked_to_stop()`."""
        self.limits = limits or SqlLimits()
        self._asked_to_stop = asked_to_stop
        limit_heap(self.limits.max_heap_bytes)
        self._deadline = Deadline(self.limits.max_cpu_s, asked_to_stop)
        self._open: OrderedDict[tuple[str, str], SqlConnection] = OrderedDict()
        self._misread_in: dict[str, frozenset[str]] = {}  # by database: `misread_columns`

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
                if job.explain:  # perhaps it was a look-up: then the result has no remarks
                    result = self._run_once(job._replace(explain=()))
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
            return SqlResult(error=unreadable(error), error_code="db_error")
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
            if kind == JobKind.VALUES:
                return column_values(connection, job.sql)
            default = self.limits.gold_rows if kind == JobKind.GOLD else None
            max_rows = default if job.max_rows is None else job.max_rows
            read_rows = self.limits.gold_rows if kind == JobKind.QUERY else 0
            result = run_query(connection, job.sql, max_rows, read_rows=read_rows)
            if job.explain and result.error is None:
                result.remarks = self._remarks(connection, job, result)
        except LookupStopped:
            return SqlResult(error=STOPPED, error_code=STOPPED)
        finally:
            self._deadline.watch(None)
        explainable = result.error_code in EXPLAINABLE or (result.error or "").startswith(TOO_WIDE)
        if kind == JobKind.QUERY and result.error and explainable:
            described = self._connection(JobKind.DESCRIBE, job.db_path)
            problem, tables, hint = result.error.partition(TABLES_HINT)
            hint = f"{tables}{hint}".removeprefix(NEXT_HINT)
            remedy = remedy_of(described, job.sql, problem) if "errors" in job.explain else ""
            if problem.startswith(NO_COLUMN):
                hint = columns_hint(described, job.sql)
            return replace(result, error=NEXT_HINT.join(filter(None, (problem, remedy, hint))))
        return result

    def _remarks(self, connection: SqlConnection, job: SqlJob, result: SqlResult) -> list[str]:
        if len(job.sql) > MAX_STATEMENT_CHARS:
            return []
        empty = "empty" in job.explain and found_nothing(result)
        misread = partial(self._misread, job.db_path)
        misleading = "remarks" in job.explain and may_mislead(job.sql, misread)
        if not (empty or misleading):
            return []
        # sqlglot takes 14 MB and 0.15 s
        from env_server.sql.remarks import remarks_on

        trusted = self._connection(JobKind.DESCRIBE, job.db_path)
        return remarks_on(connection, trusted, job.sql, result, empty=empty, misleading=misleading)

    def _misread(self, path: str) -> frozenset[str]:
        if path not in self._misread_in:
            if len(self._misread_in) >= self.limits.open_connections:
                self._misread_in.clear()
            self._misread_in[path] = misread_columns(self._connection(JobKind.DESCRIBE, path))
        return self._misread_in[path]

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


def found_nothing(result: SqlResult) -> bool:
    """Return whether a result has no rows, or one of NULLs and zeros."""
    return not result.rows or (
        len(result.rows) == 1 and all(cell is None or cell == 0 for cell in result.rows[0])
    )


def may_mislead(sql: str, misread: Callable[[], frozenset[str]]) -> bool:
    """Return whether a statement divides, has a name in quotes outside its conditions, or may
    order, compare or add up a column of `misread`."""
    outside = _TEXTS.sub("''", sql)
    if "/" in outside or ('"' in outside and _QUOTED_OUTPUT.search(outside)):
        return True
    return _ORDERS.search(outside) is not None and any(
        name in outside.lower() for name in misread()
    )


def describe(connection: SqlConnection, table: str) -> SqlResult:
    """Return a table's columns as rows (name, declared type or "", 1 if in the primary key,
    "table.column" or None), and its number of rows, None if counting takes too many steps."""
    name = quote_text(table)
    columns = columns_of(connection, table)
    if columns.error is None and not columns.rows:
        error = f"no such table: {table}; {tables_hint(connection.tables)}"
        return SqlResult(error=error, error_code="no_such_table")
    keys = run_query(connection, _REFERENCES.format(name=name), ALL_ROWS)
    count = run_query(connection, f"SELECT count(*) FROM {quote_identifier(table)}", 1)
    uncounted = count.error_code == "sql_budget" and connection.exceeded == "steps"  # a costly view
    for result in (columns, keys, count):
        if result.error is not None and not (result is count and uncounted):
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
        row_count=None if uncounted else count.rows[0][0],  # type: ignore[arg-type]
    )


def sample(connection: SqlConnection, table: str) -> SqlResult:
    """Return a table's first rows in stored order."""
    # NOT INDEXED: a covering index has a different order from the table
    statement = f"SELECT * FROM {quote_identifier(table)} NOT INDEXED"
    result = run_query(connection, statement, connection.limits.sample_rows)
    result.truncated = False  # a sample is not a cut result
    return result
