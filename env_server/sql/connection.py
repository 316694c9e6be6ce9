"""A connection to one database file: jailed, for SQL that somebody wrote, or trusted, for this
package's own.

`mode=ro&immutable=1` alone is no jail: under it ATTACH creates files, VACUUM INTO copies the
database and a temporary view shadows a table for every later query. So the authorizer allows a list
and denies the rest, and nothing that a statement can do outlives it.

The clock stands at 2024-01-01 00:00:00 UTC: SQLite asks its VFS for the time, also for
CURRENT_TIMESTAMP. What remains of the machine is its time zone, in the modifier 'localtime'; a
worker runs in UTC.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from env_server.sql import functions
from env_server.sql.builtin import is_builtin_table
from env_server.sql.limits import SqlPolicy

FIXED_JULIAN_DAY = 2_460_310.5  # 2024-01-01 00:00:00 UTC
_VFS_NAME = "sqlenv-fixed-clock"
_CATALOGUE = "the catalogue can't be queried; use DESCRIBE with a table's name"
_ONLY_SELECT = "only one SELECT statement is allowed"
_NOT_A_TABLE = "{} can't be read; " + _ONLY_SELECT + " on the database's tables"
_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY rowid"
)
# SQLite asks the authorizer about no column that a join has in USING, or that NATURAL finds. So the
# catalogue's names are looked for in the text too, where an identifier can't hide: it has no
# escapes.
_CATALOGUE_NAME = re.compile(
    r"\b(?:sqlite_(?:temp_)?(?:master|schema)|sqlite_(?:sequence|stat[134])|pragma_\w+)\b",
    re.IGNORECASE,
)
_IMPLICIT_READ = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)
_AFTER_STATEMENT = re.compile(r"(?:[\s;]++|--[^\n]*+|/\*.*?(?:\*/|\Z))*+", re.DOTALL)


class Refused(Exception):
    """The policy refuses a statement; the text is for the agent."""


class _FixedClock(apsw.VFS):
    def __init__(self) -> None:
        super().__init__(_VFS_NAME, "")

    def xCurrentTime(self) -> float:
        return FIXED_JULIAN_DAY

    def xCurrentTimeInt64(self) -> int:
        return int(FIXED_JULIAN_DAY * 86_400_000)


_clock = _FixedClock()  # registered in SQLite for as long as it lives


def _open(path: str, policy: SqlPolicy) -> apsw.Connection:
    # of a path through a symbolic link SQLite says so, which apsw takes for an error
    real = str(Path(path).resolve())
    connection = apsw.Connection(
        f"file:{quote(real)}?mode=ro&immutable=1",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        vfs=_VFS_NAME,
        statementcachesize=0,  # a cached statement moves the step count by one callback
    )
    try:
        _configure(connection, policy)
    except BaseException:
        connection.close(True)
        raise
    return connection


def _configure(connection: apsw.Connection, policy: SqlPolicy) -> None:
    connection.execute(f"PRAGMA cache_size = -{policy.page_cache_kib}")
    # sorts spill into the heap that is limited, not into files
    connection.execute("PRAGMA temp_store = MEMORY")
    for option, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DML, 1),  # one in five of Spider's golds writes "text" for 'text'
    ):
        connection.config(option, value)
    for limit, value in (
        (apsw.SQLITE_LIMIT_LENGTH, policy.max_length_bytes),
        (apsw.SQLITE_LIMIT_SQL_LENGTH, policy.max_sql_bytes),
        (apsw.SQLITE_LIMIT_COLUMN, policy.max_columns),
        (apsw.SQLITE_LIMIT_EXPR_DEPTH, policy.max_expr_depth),
        (apsw.SQLITE_LIMIT_COMPOUND_SELECT, policy.max_compound_selects),
        (apsw.SQLITE_LIMIT_VDBE_OP, policy.max_vdbe_ops),
        (apsw.SQLITE_LIMIT_FUNCTION_ARG, policy.max_function_args),
        (apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, policy.max_like_pattern_bytes),
        (apsw.SQLITE_LIMIT_VARIABLE_NUMBER, policy.max_variables),
        (apsw.SQLITE_LIMIT_ATTACHED, policy.max_attached),
        (apsw.SQLITE_LIMIT_TRIGGER_DEPTH, policy.max_trigger_depth),
        (apsw.SQLITE_LIMIT_WORKER_THREADS, policy.max_worker_threads),
    ):
        connection.limit(limit, value)
    connection.drop_modules(None)  # dbstat and the full-text modules read more than tables


class SqlConnection:
    """A read-only connection under the policy's limits. One statement at a time: `start` before
    each.

    Jailed, it can read the tables and views of its database and nothing else; trusted, the
    catalogue too. `tables` are their names, in creation order. After a statement: `statement` its
    text as SQLite parsed it, `columns` its column names, `denied` why the authorizer refused it
    (else None), `over` which limit stopped it ("steps", "calls" of dear functions, "cpu" by a
    `Deadline`, else None), `vm_steps` what it cost.
    """

    def __init__(self, path: str, policy: SqlPolicy, *, jailed: bool = True) -> None:
        """Opens `path`. Raises apsw's errors."""
        self.policy = policy
        self.raw = _open(path, policy)
        try:
            self.tables = [name for (name,) in self.raw.execute(_TABLES)]
        except BaseException:
            self.raw.close(True)
            raise
        self._known = {name.lower(): name for name in self.tables}
        self._functions = frozenset(policy.functions)
        self._dear = frozenset(policy.dear_functions)
        self._counting_calls = False
        self.start("")
        self.raw.exec_trace = self._trace
        self.raw.set_progress_handler(self._count, policy.handler_vm_steps)
        self._jailed = jailed
        if jailed:
            functions.register(self.raw)
            self.raw.authorizer = self._authorize

    def start(self, sql: str) -> None:
        """Forget the last statement; `sql` is the next."""
        self.sql = sql
        self.statement = ""
        self.columns: list[str] = []
        self._reads: set[str] = set()
        self._calls_dear = False
        self.denied: str | None = None
        self.over: str | None = None
        self._callbacks = 0
        self._max_callbacks = self.policy.max_vm_steps // self.policy.handler_vm_steps

    @property
    def reads(self) -> list[str]:
        """The tables that the last statement reads, sorted."""
        names = self._reads
        if _IMPLICIT_READ.search(self.sql):
            words = set(re.findall(r"\w+", self.sql.lower()))
            names = names | {name for lower, name in self._known.items() if lower in words}
        return sorted(names)

    @property
    def vm_steps(self) -> int:
        return self._callbacks * self.policy.handler_vm_steps

    def check(self) -> None:
        """`Refused` where the statement's text alone shows that it is not for a jailed connection."""
        if self._jailed and _CATALOGUE_NAME.search(self.sql):
            raise Refused(_CATALOGUE)
        if self._jailed and _IMPLICIT_READ.search(self.sql):
            for word in sorted(set(re.findall(r"\w+", self.sql.lower())) - set(self._known)):
                if is_builtin_table(word):
                    raise Refused(_NOT_A_TABLE.format(word))

    def close(self) -> None:
        self.raw.close(True)

    def _count(self) -> bool:
        """SQLite's progress handler: True interrupts."""
        self._callbacks += 1
        if self._callbacks > self._max_callbacks:
            self.over = "steps"
            return True
        return False

    def _trace(self, cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        """Runs before a statement does. apsw runs several in one call, so the text after the first
        counts here."""
        if self._counting_calls:
            return True
        if not cursor.has_vdbe:
            if self.statement:  # a comment after the statement
                return True
            raise Refused(f"no statement: {_ONLY_SELECT}")
        if not cursor.is_readonly or cursor.is_explain:
            raise Refused(_ONLY_SELECT)
        if not self.sql.startswith(sql) or not _only_comments(self.sql[len(sql) :]):
            raise Refused(f"several statements: {_ONLY_SELECT}")
        self.statement = sql
        self.columns = [column[0] for column in cursor.get_description()]
        if not self.columns:
            raise Refused(_ONLY_SELECT)
        if self._calls_dear and self._dear_calls(sql) > self.policy.max_dear_calls:
            self.over = "calls"
            return False
        return True

    def _dear_calls(self, sql: str) -> int:
        """How many calls of dear functions the compiled statement has; one more than are allowed
        stands for the rest.

        Compiling it once more costs 0.1 ms, which a statement without such functions is spared.
        """
        reads, callbacks, calls = set(self._reads), self._callbacks, 0
        prefix = "EXPLAIN "
        self._counting_calls = True
        self.raw.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, self.policy.max_sql_bytes + len(prefix))
        cursor = self.raw.cursor()
        try:
            for operation in cursor.execute(prefix + sql):
                if operation[1] in ("Function", "PureFunc"):
                    calls += str(operation[5]).partition("(")[0] in self._dear
                    if calls > self.policy.max_dear_calls:
                        break
        finally:
            cursor.close(True)
            self.raw.limit(apsw.SQLITE_LIMIT_SQL_LENGTH, self.policy.max_sql_bytes)
            self._counting_calls = False
            self._reads, self._callbacks = reads, callbacks
        return calls

    def _authorize(
        self, action: int, first: str | None, second: str | None, schema: str | None, _: str | None
    ) -> int:
        """SQLite's authorizer: allows a list, denies the rest. Runs while a statement is being
        prepared."""
        if action == apsw.SQLITE_READ:
            return self._authorize_read((first or "").lower(), second, schema)
        if action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE):
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION:
            name = (second or "").lower()
            if name in self._functions:
                self._calls_dear = self._calls_dear or name in self._dear
                return apsw.SQLITE_OK
            return self._deny(f"the function {second}() is not allowed")
        return self._deny(_ONLY_SELECT)

    def _authorize_read(self, table: str, column: str | None, schema: str | None) -> int:
        if table in self._known:
            if schema in ("main", None):
                self._reads.add(self._known[table])
                return apsw.SQLITE_OK
        elif not table.startswith(("sqlite_", "pragma_")):
            # The rows of a common table expression, none of whose columns is used
            if column == "" and schema is None and not is_builtin_table(table):
                return apsw.SQLITE_OK
            return self._deny(_NOT_A_TABLE.format(table))
        return self._deny(_CATALOGUE)

    def _deny(self, reason: str) -> int:
        self.denied = self.denied or reason
        return apsw.SQLITE_DENY


def _only_comments(text: str) -> bool:
    """Whether nothing but white space, semicolons and comments is in `text`."""
    return _AFTER_STATEMENT.fullmatch(text) is not None
