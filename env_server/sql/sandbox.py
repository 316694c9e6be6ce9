"""A connection to a database file: jailed, for other people's SQL, or trusted, for this package's.

`mode=ro&immutable=1` alone is no jail: with it ATTACH still creates files, VACUUM INTO copies the
database, and a temporary view shadows a table for all later queries. So the authorizer allows a
list and denies the rest, and no effect of a statement outlives it.

The clock is fixed at 2024-01-01 00:00:00 UTC: SQLite asks its VFS for the time, also for
CURRENT_TIMESTAMP. Only the modifier 'localtime' depends on the machine; a worker runs in UTC.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from env_server.sql.jobs import Cell
from env_server.sql.limits import SqlLimits
from shared.sqltext import quote_identifier

MAX_MODULE_CHARS = 100  # more than any table that SQLite provides: pragma_foreign_key_list has 23
CALLBACKS_PER_STOP_CHECK = 16  # of the step counter: 0.2 ms
FIXED_JULIAN_DAY = 2_460_310.5  # 2024-01-01 00:00:00 UTC
VFS_NAME = "sqlenv-fixed-clock"
_CATALOGUE = "the catalogue can't be queried; use DESCRIBE with a table's name"
# What an error suggests in place of a denied function.
REMEDIES = dict.fromkeys(
    ("median", "percentile", "percentile_cont", "percentile_disc"),
    "to get one row of a sorted column, use ORDER BY with LIMIT 1 OFFSET n",
)
_ONLY_SELECT = "only one SELECT statement is allowed"
_NOT_A_TABLE = "{} can't be read; " + _ONLY_SELECT + " on the database's tables"
_TABLES = (
    "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
)
# SQLite does not ask the authorizer about columns in USING or those that NATURAL matches. So the
# text is searched for the catalogue's names too; SQL has no escapes that could hide an identifier.
_CATALOGUE_NAME = re.compile(
    r"\b(?:sqlite_(?:temp_)?(?:master|schema)|sqlite_(?:sequence|stat[134])|pragma_\w+)\b",
    re.IGNORECASE,
)
_MAX_BYTES_AROUND = 60_000  # around a statement: EXPLAIN, or a cast of each of 200 columns
# a keyword may follow a parameter's number without a space: ?1NATURAL
_IMPLICIT_READ = re.compile(r"(?:\b|\d)(?:using|natural)\b", re.IGNORECASE)
# Functions of the number of rows, whatever the rows hold.
_COUNTING = frozenset(
    ("count", "group_concat", "json_group_array", "row_number", "string_agg", "sum", "total")
)
_AFTER_STATEMENT = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*.*?(?:\*/|\Z))*+", re.DOTALL)


class Refused(Exception):
    """A statement is not allowed; the text is for the agent."""


class _FixedClock(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(VFS_NAME, "")

    def xCurrentTime(self) -> float:
        return FIXED_JULIAN_DAY

    def xCurrentTimeInt64(self) -> int:
        return int(FIXED_JULIAN_DAY * 86_400_000)


_clock = _FixedClock()  # registered in SQLite for as long as it lives


def _open(path: str) -> apsw.Connection:
    # apsw raises for SQLite's notice about a symbolic link
    real = str(Path(path).resolve())
    return apsw.Connection(
        f"file:{quote(real)}?mode=ro&immutable=1",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        vfs=VFS_NAME,
        statementcachesize=0,  # a cached statement moves the step count by one callback
    )


def _configure(connection: apsw.Connection, limits: SqlLimits) -> None:
    connection.execute(f"PRAGMA cache_size = -{limits.page_cache_kib}")
    # sorts spill into the limited heap, not into files
    connection.execute("PRAGMA temp_store = MEMORY")
    for option, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DML, 1),  # every fifth gold of Spider writes "text" for 'text'
    ):
        connection.config(option, value)
    for limit, value in (
        (apsw.SQLITE_LIMIT_LENGTH, limits.max_length_bytes),
        (apsw.SQLITE_LIMIT_SQL_LENGTH, limits.max_sql_bytes),
        (apsw.SQLITE_LIMIT_COLUMN, limits.max_columns),
        (apsw.SQLITE_LIMIT_EXPR_DEPTH, limits.max_expr_depth),
        (apsw.SQLITE_LIMIT_COMPOUND_SELECT, limits.max_compound_selects),
        (apsw.SQLITE_LIMIT_VDBE_OP, limits.max_vdbe_ops),
        (apsw.SQLITE_LIMIT_FUNCTION_ARG, limits.max_function_args),
        (apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, limits.max_like_pattern_bytes),
        (apsw.SQLITE_LIMIT_VARIABLE_NUMBER, limits.max_variables),
        (apsw.SQLITE_LIMIT_ATTACHED, limits.max_attached),
        (apsw.SQLITE_LIMIT_TRIGGER_DEPTH, limits.max_trigger_depth),
        (apsw.SQLITE_LIMIT_WORKER_THREADS, limits.max_worker_threads),
    ):
        connection.limit(limit, value)
    connection.drop_modules(None)  # dbstat and the full-text modules read more than tables


def limit_heap(max_bytes: int) -> None:
    """Limit SQLite's heap in this process."""
    apsw.hard_heap_limit(max_bytes)
    apsw.soft_heap_limit(max_bytes)  # raising the hard one does not raise it


class SqlConnection:
    """A read-only connection under the limits. Runs one statement at a time: `start` before each.

    Jailed, it can only read the tables and views of its database, which are its `tables` in
    creation order; trusted, the catalogue too.
    """

    def __init__(
        self,
        path: str,
        limits: SqlLimits,
        *,
        jailed: bool = True,
        asked_to_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open `path`. Raises apsw's errors."""
        self.limits = limits
        self._asked_to_stop = asked_to_stop
        self.raw = _open(path)
        try:
            _configure(self.raw, limits)
            kinds = list(self.raw.execute(_TABLES))
        except BaseException:
            self.raw.close(True)
            raise
        self.tables: list[str] = [name for name, _ in kinds]
        self.columns_by_table: dict[str, list[str]] = {}  # as far as look-ups needed them
        self._known = {name.lower() for name in self.tables}
        self._views = {name.lower() for name, kind in kinds if kind == "view"}
        self._functions = frozenset(limits.functions)
        self._expensive = frozenset(limits.expensive_functions)
        self._counting_calls = False
        self.start("")
        self.raw.exec_trace = self._trace
        self.raw.set_progress_handler(self._count, limits.handler_vm_steps)
        self._jailed = jailed
        if jailed:
            register_trim(self.raw)
            self.raw.authorizer = self._authorize

    def start(self, sql: str, max_vm_steps: int | None = None) -> None:
        """Reset the state for the next statement, `sql`; `max_vm_steps` replaces the limits'."""
        self.sql = sql
        self.statement = ""  # as SQLite parsed it
        self.columns: list[str] = []
        self._reads_rows = self._reads_cells = self._counts_rows = False
        self._calls_expensive = False
        self.denied: str | None = None  # why the authorizer denied it
        self.exceeded: str | None = None  # what stopped it: "steps", "calls", "cpu" or "stop"
        self.compiled = False  # memory that runs out before is `max_compile_bytes`
        self._callbacks = 0
        most = self.limits.max_vm_steps if max_vm_steps is None else max_vm_steps
        self._max_callbacks = most // self.limits.handler_vm_steps

    @property
    def reads_data(self) -> bool:
        """Whether the last statement reads a column of a table, or counts a table's rows."""
        if self._reads_cells or not self._counts_rows:
            return self._reads_cells
        named = _IMPLICIT_READ.search(self.sql) and not self._words().isdisjoint(self._known)
        return self._reads_rows or bool(named)

    def _words(self) -> set[str]:
        return set(re.findall(r"\w+", self.sql.lower()))

    @property
    def vm_steps(self) -> int:
        """The last statement's cost, in whole callbacks of the step counter."""
        return self._callbacks * self.limits.handler_vm_steps

    def check(self) -> None:
        """Raise `Refused` if the statement's text alone shows that the jail does not allow it."""
        if not self._jailed:
            return
        if _CATALOGUE_NAME.search(self.sql):
            raise Refused(_CATALOGUE)
        if _IMPLICIT_READ.search(self.sql):
            for word in sorted(self._words() - self._known):
                if is_virtual_table(word):
                    raise Refused(_NOT_A_TABLE.format(word))

    def close(self) -> None:
        self.raw.close(True)

    def _count(self) -> bool:
        """Count steps, as SQLite's progress handler: True interrupts the statement."""
        self._callbacks += 1
        if self._callbacks > self._max_callbacks:
            self.exceeded = "steps"
            return True
        # a check at each callback would cost a scan 1 %
        if not self._callbacks % CALLBACKS_PER_STOP_CHECK and self._asked_to_stop():
            self.exceeded = "stop"
            return True
        return False

    def _trace(self, cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        """Check a statement before it runs, as apsw's tracer; apsw runs several in one call."""
        if self._counting_calls:
            return True
        if not cursor.has_vdbe:
            if self.statement:  # a comment after the statement
                return True
            raise Refused(f"no statement: {_ONLY_SELECT}")
        if not cursor.is_readonly or cursor.is_explain:
            raise Refused(_ONLY_SELECT)
        if not self.sql.startswith(sql) or not _AFTER_STATEMENT.fullmatch(self.sql[len(sql) :]):
            raise Refused(f"several statements: {_ONLY_SELECT}")
        self.statement = sql
        self.columns = [column[0] for column in cursor.get_description()]
        if not self.columns:
            raise Refused(_ONLY_SELECT)
        if self._calls_expensive and self._count_calls(sql) > self.limits.max_expensive_calls:
            self.exceeded = "calls"
            return False
        self.compiled = True
        limit_heap(self.limits.max_heap_bytes)
        return True

    def _count_calls(self, sql: str) -> int:
        """Return the number of calls of expensive functions in a statement, or one over the limit.
        Compiling it again costs 0.1 ms."""
        callbacks, calls = self._callbacks, 0
        self._counting_calls = True
        cursor = self.raw.cursor()
        try:
            with self.longer_statement():
                for operation in cursor.execute(f"EXPLAIN {sql}"):
                    if operation[1] in ("Function", "PureFunc"):
                        calls += str(operation[5]).partition("(")[0] in self._expensive
                        if calls > self.limits.max_expensive_calls:
                            break
        finally:
            cursor.close(True)
            self._counting_calls = False
            self._callbacks = callbacks
        return calls

    @contextmanager
    def longer_statement(self) -> Iterator[None]:
        """Allow what this package writes around a statement; the statement itself was in bounds."""
        limit = self.limits.max_sql_bytes
        self.raw.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, limit + _MAX_BYTES_AROUND)
        try:
            yield
        finally:
            self.raw.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, limit)

    def _authorize(
        self, action: int, first: str | None, second: str | None, schema: str | None,
        view: str | None,
    ) -> int:  # fmt: skip
        """Allow a list and deny the rest, as SQLite's authorizer, while a statement is prepared."""
        if action == apsw.SQLITE_READ:
            return self._authorize_read((first or "").lower(), second, schema, view)
        if action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            name = (second or "").lower()
            if name in self._functions:
                self._calls_expensive |= name in self._expensive
                self._counts_rows |= name in _COUNTING
                return apsw.SQLITE_OK
            remedy = f"; {REMEDIES[name]}" if name in REMEDIES else ""
            return self._deny(f"the function {second}() is not allowed{remedy}")
        return self._deny(_ONLY_SELECT)

    def _authorize_read(
        self, table: str, column: str | None, schema: str | None, view: str | None
    ) -> int:
        if table in self._known:
            if schema in ("main", None):
                self._reads_rows = True
                # SQLite names every column that a view reads, used or not
                self._reads_cells |= bool(column) and (view or "").lower() not in self._views
                return apsw.SQLITE_OK
        elif not table.startswith(("sqlite_", "pragma_")):
            # the rows of a common table expression, no column of which is used
            if column == "" and schema is None and not is_virtual_table(table):
                return apsw.SQLITE_OK
            return self._deny(_NOT_A_TABLE.format(table))
        return self._deny(_CATALOGUE)

    def _deny(self, reason: str) -> int:
        self.denied = self.denied or reason
        return apsw.SQLITE_DENY


def is_virtual_table(name: str) -> bool:
    """Return whether SQLite itself provides a table of this name, such as json_each or carray.

    Such tables cannot be listed or dropped, since SQLite registers some when they are first named.
    It does not ask the authorizer about one whose columns are joined by USING, or not used.
    """
    # agents choose the names: thousands of long ones in the cache would fill a worker's memory
    return len(name) <= MAX_MODULE_CHARS and _is_virtual_table(name)


@lru_cache(4096)
def _is_virtual_table(name: str) -> bool:
    try:
        _scratch().execute(f"EXPLAIN SELECT 1 FROM {quote_identifier(name)}").close()
    except apsw.SQLError as error:
        return not str(error).startswith("no such table")
    return True


def register_trim(connection: apsw.Connection) -> None:
    """Replace trim(), ltrim() and rtrim() with two arguments by equal ones that take one pass.

    SQLite's scan the whole second text for every character of the first: 0.3 s for one call on two
    long texts, which nothing can interrupt.
    """
    for name, left, right in (("trim", True, True), ("ltrim", True, False), ("rtrim", False, True)):
        function, flags = partial(_trim, left, right), apsw.SQLITE_INNOCUOUS
        connection.create_scalar_function(name, function, 2, deterministic=True, flags=flags)


def _trim(left: bool, right: bool, value: Cell, characters: Cell) -> str | None:
    if value is None or characters is None:
        return None
    text = _as_text(value)
    unwanted = frozenset(_as_text(characters).partition("\0")[0])  # those after a null don't count
    start, end = 0, len(text)
    while left and start < end and text[start] in unwanted:
        start += 1
    while right and end > start and text[end - 1] in unwanted:
        end -= 1
    return text[start:end]


def _as_text(value: Cell) -> str:
    """Return CAST(value AS TEXT). Raises `UnicodeDecodeError` for a blob that is not UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return str(_scratch().execute("SELECT CAST(? AS TEXT)", (value,)).get)
    return str(value)


@lru_cache(1)
def _scratch() -> apsw.Connection:
    return apsw.Connection(":memory:")
