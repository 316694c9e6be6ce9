"""Run a gold query and check that its result can be an answer: not empty, small, and unique.

Uniqueness has four checks: equal sort keys (`find_tie`), columns beside an aggregate (`find_bare`),
the query again with SQLite's unordered scans reversed, which detects, for example, a scalar
subquery with several rows, and windows and lists whose order is open (`settle_orders`).

Whether its values can be read in another way, with another answer, is `find_undecided`.

An import may keep some of these golds (`KEEP`, `KEEP_OVERSIZE`): those with ties, if the server can
determine every member of the tie, those without rows or with nothing but NULL, those that the data
do not decide, and those whose answers are too large to show.
"""

import math
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import apsw

from data.golds.bare_columns import find_bare
from data.golds.ties import MAX_TIE_ROWS, find_tie, settle_orders
from data.golds.undecided import find_undecided
from shared.actions import MAX_ARGUMENT_BYTES, too_long
from shared.console import counted
from shared.errors import DatabaseLoadError, DataError
from shared.models import AnswerType

Cell = int | float | str | None

# an agent is shown no more of a result than this
MAX_ROWS = 20
MAX_CELL_CHARS = 200
MAX_RESULT_BYTES = 4_000
MAX_KEPT_ROWS, MAX_KEPT_BYTES = 999, 200_000  # of an answer too large to show, if such are kept
MAX_KEPT_CELLS = 10_000  # that the server reads of a query: `SqlLimits.max_result_cells`
MAX_VM_STEPS = 30_000_000  # below the server's own budget, so that an agent can run any gold
HANDLER_VM_STEPS = 1_000
# of a file from elsewhere: single steps of functions can take long, and much memory
MAX_CPU_S = 60.0
MAX_LENGTH_BYTES, MAX_HEAP_BYTES = 1_000_000, 512 * 1024 * 1024

_READS = re.compile(r"\s*(?:select|with|values)\b", re.IGNORECASE)
_VOLATILE = re.compile(
    r"\brandom(?:blob)?\s*\(|(['\"])(?:now|localtime)\1|\bcurrent_(?:date|time|timestamp)\b"
    r"|\b(?:date|time|datetime|julianday|unixepoch)\s*\(\s*\)|\bstrftime\s*\(\s*'[^']*'\s*\)",
    re.IGNORECASE,
)
# no other query's result depends on the order of the scan
_SCAN_ORDER_MATTERS = re.compile(r"\(|\blimit\b|\bgroup\b", re.IGNORECASE)
_ORDER_OR_LIMIT = re.compile(r"\border\s+by\b|\blimit\b", re.IGNORECASE)


class Reason(StrEnum):
    """Why a gold query can't be used."""

    FAILING = "failing"  # SQLite rejects it, or it is not one SELECT
    EMPTY = "empty"  # no rows
    NULL = "null"  # nothing but NULL
    TIED = "tied"  # equal sort keys: more than one answer is right
    ORDER = "order-dependent"  # the result depends on the order in which rows are scanned
    OVERSIZE = "oversize"  # more rows, or longer text, than an agent is shown
    RUNAWAY = "runaway"  # over MAX_VM_STEPS
    UNDECIDED = "undecided"  # values can be read in another way, with another answer
    UNSTABLE = "unstable"  # non-deterministic, or a value that is not a finite number or UTF-8 text
    UNPARSED = "unparsed"  # by sqlglot, which reads SQL for the difficulty
    DIALECT = "dialect"  # SQLite answers otherwise than the database that the SQL is for
    MENDED = "mended"  # its answer has changed with the cells


KEEP_EMPTY = frozenset((Reason.EMPTY, Reason.NULL))
KEEP_OVERSIZE = frozenset((Reason.OVERSIZE,))
# what a user can ask an import to keep
KEEP = {
    "ties": frozenset((Reason.TIED,)),
    "empty": KEEP_EMPTY,
    "undecided": frozenset((Reason.UNDECIDED,)),
}


class GoldRejected(DataError):
    """A gold query that can't be used, with the reason and one line of detail."""

    code: ClassVar[str] = "gold_rejected"

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}", reason=str(reason))
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class GoldResult:
    """The result of a gold query. `answer` is a scalar, a list of cells or a list of rows.

    `kept` maps the reasons for which it would be rejected, but was to be kept, to their details.
    """

    rows: tuple[tuple[Cell, ...], ...]
    answer: Any
    answer_type: AnswerType
    kept: Mapping[Reason, str] = field(default_factory=dict)


def open_readonly(path: Path | str) -> apsw.Connection:
    """Open a connection that can't write or attach. Raises `DatabaseLoadError`, naming the path, if
    the file is missing or not a SQLite database."""
    path = Path(path)
    if not os.path.isfile(path):
        raise DatabaseLoadError(f"no database at {path}")
    try:
        connection = apsw.Connection(
            f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except apsw.Error as error:
        raise DatabaseLoadError(f"{path} is not a usable SQLite database: {error}") from error
    return connection


def run_gold(connection: apsw.Connection, sql: str, keep: Collection[Reason] = ()) -> GoldResult:
    """Run a gold query and return its rows and answer; raise `GoldRejected` if it can't be used.

    `keep` are reasons for which it is not rejected: of `KEEP` or `KEEP_OVERSIZE`.
    """
    if not _READS.match(sql):
        raise GoldRejected(Reason.FAILING, "not a SELECT")
    if too_long(sql):
        raise GoldRejected(Reason.FAILING, f"over {MAX_ARGUMENT_BYTES:,} bytes of SQL")
    if _VOLATILE.search(sql):
        raise GoldRejected(Reason.UNSTABLE, "non-deterministic (random or time functions)")
    with _mapped_errors():
        most = MAX_KEPT_ROWS if Reason.OVERSIZE in keep else MAX_ROWS
        rows = _fetch(connection, sql, most + 1)
        run_again = partial(_fetch, connection, most=most + 1)
        try:
            kept = _check_rows(rows, keep)
        except GoldRejected as error:
            doubt = error.reason in KEEP_EMPTY and find_undecided(sql, rows, run_again, connection)
            raise GoldRejected(Reason.UNDECIDED, doubt) if doubt else error from None
        shown, original = tuple(rows), sql
        tie = find_tie(sql, partial(_stream, connection)) if _ORDER_OR_LIMIT.search(sql) else None
        if tie is not None:
            if tie.whole is None or Reason.TIED not in keep:
                raise GoldRejected(Reason.TIED, tie.detail)
            kept[Reason.TIED] = tie.detail
            # what nothing but the tie may leave open: all rows that the answer may hold
            sql, rows = tie.whole, _fetch(connection, tie.whole, MAX_TIE_ROWS)
        _check_order(connection, sql, rows)
        if undecided := find_undecided(original, shown, run_again, connection):
            if Reason.UNDECIDED not in keep:
                raise GoldRejected(Reason.UNDECIDED, undecided)
            kept[Reason.UNDECIDED] = undecided
    return GoldResult(shown, *type_answer(shown), kept)


def _check_order(connection: apsw.Connection, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Raise `GoldRejected` if `rows`, the result of `sql`, depend on the order of a scan."""
    if open_columns := find_bare(sql, partial(_stream, connection)):
        raise GoldRejected(Reason.ORDER, open_columns)
    if not _SCAN_ORDER_MATTERS.search(sql):
        return
    most = max(len(rows), MAX_ROWS) + 1
    connection.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 1)
    try:
        again = _fetch(connection, sql, most)
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 0)
    if not _same_rows(rows, again):
        raise GoldRejected(Reason.ORDER, "the result changes with the order of the scan")
    with suppress(apsw.SQLError):  # a WITH table, a view or a table WITHOUT ROWID
        for settled in settle_orders(sql):
            if not _same_rows(rows, _fetch(connection, settled, most)):
                open_order = "a window or a list (group_concat) has rows whose order is open"
                raise GoldRejected(Reason.ORDER, open_order)


def _same_rows(left: Iterable[tuple[Cell, ...]], right: Iterable[tuple[Cell, ...]]) -> bool:
    """Return whether both have the same rows in any order, floats to nine digits: the last digits
    of a sum depend on the order of the scan."""

    def rounded(row: Iterable[Cell]) -> tuple[Cell, ...]:
        return tuple(float(f"{round(x, 9):.9g}") if isinstance(x, float) else x for x in row)

    return Counter(map(rounded, left)) == Counter(map(rounded, right))


def type_answer(rows: Sequence[Sequence[Cell]]) -> tuple[Any, AnswerType]:
    """Return `(gold_answer, answer_type)` of checked rows.

    One cell is a scalar (integer, float or string; NULL is called a string), one column of several
    rows or none a list of its cells, anything else a table: a list of rows.
    """
    if not rows:
        return [], "list"
    if len(rows[0]) > 1:
        return [list(row) for row in rows], "table"
    if len(rows) > 1:
        return [row[0] for row in rows], "list"
    kinds: dict[type, AnswerType] = {int: "integer", float: "float", str: "string"}
    return rows[0][0], kinds.get(type(rows[0][0]), "string")


def _check_rows(rows: Sequence[tuple[Any, ...]], keep: Collection[Reason]) -> dict[Reason, str]:
    """Raise `GoldRejected` for an unfit result; return the reasons in `keep` for which it is."""
    if len(rows) > MAX_KEPT_ROWS:
        raise GoldRejected(Reason.OVERSIZE, f"more than {MAX_KEPT_ROWS} rows")
    cells = [cell for row in rows for cell in row]
    if len(cells) > MAX_KEPT_CELLS:
        raise GoldRejected(Reason.OVERSIZE, f"more than {MAX_KEPT_CELLS:,} cells")
    for cell in cells:
        if isinstance(cell, bytes):
            raise GoldRejected(Reason.UNSTABLE, f"a blob of {counted(len(cell), 'byte')}")
        if isinstance(cell, float) and not math.isfinite(cell):
            raise GoldRejected(Reason.UNSTABLE, "a number that is not finite")
    long = [len(cell) for cell in cells if isinstance(cell, str) and len(cell) > MAX_CELL_CHARS]
    # about what an agent is shown
    size = sum(
        len(one.encode()) + 3 if isinstance(one, str) else 7 if one is None else 20 for one in cells
    )
    kept = {}
    if not rows:
        kept[Reason.EMPTY] = "no rows"
    if long:
        kept[Reason.OVERSIZE] = f"a cell of {long[-1]:,} characters"
    elif len(rows) > MAX_ROWS:
        kept[Reason.OVERSIZE] = f"more than {MAX_ROWS} rows"
    elif size > MAX_RESULT_BYTES:
        kept[Reason.OVERSIZE] = f"about {size:,} bytes of text"
    if rows and all(cell is None for cell in cells):
        kept[Reason.NULL] = "nothing but NULL"
    for reason, detail in kept.items():
        if reason not in keep or (reason == Reason.OVERSIZE and size > MAX_KEPT_BYTES):
            raise GoldRejected(reason, detail)
    return kept


def _stream(connection: apsw.Connection, sql: str) -> Generator[tuple[Any, ...]]:
    """Yield the rows of one read-only statement. Raises apsw's errors, `GoldRejected` for a second.

    Sets the connection's progress handler until the generator is closed.
    """
    calls = statements = 0
    until = time.process_time() + MAX_CPU_S

    def over_budget() -> bool:
        nonlocal calls
        calls += 1
        return calls * HANDLER_VM_STEPS > MAX_VM_STEPS or time.process_time() > until

    def one_statement(cursor: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
        nonlocal statements
        statements += 1
        if statements > 1 or not cursor.is_readonly:
            raise GoldRejected(Reason.FAILING, "not one SELECT")
        return True

    cursor = connection.cursor()
    cursor.exec_trace = one_statement
    connection.set_progress_handler(over_budget, HANDLER_VM_STEPS)
    longest = connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_LENGTH_BYTES)
    apsw.hard_heap_limit(MAX_HEAP_BYTES)  # of the process
    try:
        yield from cursor.execute(sql)
    finally:
        cursor.close(True)
        connection.set_progress_handler(None)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, longest)


def _fetch(connection: apsw.Connection, sql: str, most: int) -> list[tuple[Any, ...]]:
    with closing(_stream(connection, sql)) as stream:  # the next statement sets the handler
        return list(islice(stream, most))


@contextmanager
def _mapped_errors() -> Iterator[None]:
    try:
        yield
    except apsw.InterruptError as error:
        most = f"over {MAX_VM_STEPS:,} SQLite VM steps, or {MAX_CPU_S:g} s of CPU"
        raise GoldRejected(Reason.RUNAWAY, most) from error
    except apsw.Error as error:
        raise GoldRejected(Reason.FAILING, str(error)) from error
    except UnicodeDecodeError as error:
        raise GoldRejected(Reason.UNSTABLE, "text that is not UTF-8") from error
    except RecursionError as error:
        raise GoldRejected(Reason.FAILING, "nested too deeply to be checked") from error
    except MemoryError as error:
        raise GoldRejected(Reason.FAILING, "SQLite ran out of memory") from error
