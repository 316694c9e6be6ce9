"""Runs a gold query and says whether its result can be an answer: there, as small as an agent sees,
and unique.

    Gold                the rows, and the answer with its type
    GoldRejected        why a gold can't be used: `reason` (`Reason`) and `detail`
    open_readonly       a connection that can't write
    run_gold            SQL -> Gold, or GoldRejected

Uniqueness is decided in four ways. `data.golds.ties` looks at sort keys (ORDER BY, LIMIT),
`data.golds.bare_columns` at columns beside an aggregate. Then the query is run once more with
SQLite's unordered scans reversed: a result that changes hangs on something that SQL leaves open,
such as a scalar subquery with several rows. The last are the two ways of `data.golds.windows` to
order what a window function's keys leave equal.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import apsw

from data.golds.answers import Cell, type_answer
from data.golds.bare_columns import find_bare
from data.golds.ties import find_tie
from data.golds.windows import settled
from shared.actions import MAX_ARGUMENT_CHARS
from shared.errors import DatabaseLoadError, DataError
from shared.models import AnswerType

MAX_ROWS = 20  # what an agent is shown of a result
MAX_CELL_CHARS = 200  # likewise: a longer cell is cut
MAX_RESULT_BYTES = 4_000  # likewise: a longer text is cut
MAX_VM_STEPS = 30_000_000  # below the server's own budget, so that an agent can run any gold
HANDLER_VM_STEPS = 1_000
# relative: a float sum changes in its last digits with the order of the scan
FLOAT_TOLERANCE = 1e-9

_READS = re.compile(r"\s*(?:select|with|values)\b", re.IGNORECASE)
_VOLATILE = re.compile(
    r"\brandom(?:blob)?\s*\(|(['\"])now\1|\bcurrent_(?:date|time|timestamp)\b", re.IGNORECASE
)
_ARGLESS_CLOCK = re.compile(
    r"\b(?:date|time|datetime|julianday|unixepoch)\s*\(\s*\)|\bstrftime\s*\(\s*'[^']*'\s*\)",
    re.IGNORECASE,
)
# no other query can depend on it
_SCAN_ORDER_MATTERS = re.compile(r"\(|\blimit\b|\bgroup\b", re.IGNORECASE)
_ORDER_OR_LIMIT = re.compile(r"\border\s+by\b|\blimit\b", re.IGNORECASE)


class Reason(StrEnum):
    """Why a gold can't be used."""

    FAILING = "failing"  # SQLite refuses it, or it is not one SELECT
    EMPTY = "empty"  # no rows
    NULL = "null"  # nothing but NULL
    TIED = "tied"  # equal sort keys, so that more than one answer is right
    ORDER = "order-dependent"  # a result that hangs on the order in which rows are scanned
    OVERSIZE = "oversize"  # more rows, or longer text, than an agent is shown
    RUNAWAY = "runaway"  # over MAX_VM_STEPS
    # blobs, infinities, broken text, or a result that hangs on the clock or on chance
    UNSTABLE = "unstable"


class GoldRejected(DataError):
    """A gold that can't be used, with the reason and one line of detail."""

    code: ClassVar[str] = "gold_rejected"

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}", reason=str(reason))
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Gold:
    """What a gold query returns. `answer` is a scalar, a list of cells, or a list of rows, as
    `answer_type` says."""

    rows: tuple[tuple[Cell, ...], ...]
    answer: Any
    answer_type: AnswerType


def open_readonly(path: Path | str) -> apsw.Connection:
    """A connection that can't write or attach, or `DatabaseLoadError` naming a path that is missing
    or no database."""
    path = Path(path)
    try:
        found = path.is_file()
    except OSError as error:  # a name that is too long, a folder that can't be entered
        raise DatabaseLoadError(f"can't open {path}: {error.strerror}") from error
    if not found:
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


def run_gold(connection: apsw.Connection, sql: str) -> Gold:
    """The rows of `sql` and their answer, or `GoldRejected`. `connection` sees reads only, and is
    left as it was."""
    if not _READS.match(sql):
        raise GoldRejected(Reason.FAILING, "not a SELECT")
    if len(sql) > MAX_ARGUMENT_CHARS:
        raise GoldRejected(Reason.FAILING, f"over {MAX_ARGUMENT_CHARS:,} characters of SQL")
    if _VOLATILE.search(sql) or _ARGLESS_CLOCK.search(sql):
        raise GoldRejected(Reason.UNSTABLE, "hangs on chance or on the clock")
    with _mapped_errors():
        rows = _fetch(connection, sql, MAX_ROWS + 1)
    _check_rows(rows)
    with _mapped_errors():
        if _ORDER_OR_LIMIT.search(sql) and (
            tie := find_tie(sql, lambda text: _stream(connection, text))
        ):
            raise GoldRejected(Reason.TIED, tie)
        if open_columns := find_bare(sql, lambda text: _stream(connection, text)):
            raise GoldRejected(Reason.ORDER, open_columns)
        if _SCAN_ORDER_MATTERS.search(sql) and not _same_rows(
            rows, _fetch_reversed(connection, sql)
        ):
            raise GoldRejected(
                Reason.ORDER, "the result changes with the order in which rows are scanned"
            )
        if _window_is_open(connection, sql):
            raise GoldRejected(
                Reason.ORDER, "a window function's rows are equal in its sort keys, and differ"
            )
    answer, answer_type = type_answer(rows)
    return Gold(tuple(rows), answer, answer_type)


def _check_rows(rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        raise GoldRejected(Reason.EMPTY, "no rows")
    if len(rows) > MAX_ROWS:
        raise GoldRejected(Reason.OVERSIZE, f"more than {MAX_ROWS} rows")
    only_null, size = True, 0
    for row in rows:
        for cell in row:
            if cell is None:
                size += 7
                continue
            only_null = False
            if isinstance(cell, str):
                if len(cell) > MAX_CELL_CHARS:
                    raise GoldRejected(Reason.OVERSIZE, f"a cell of {len(cell):,} characters")
                size += len(cell.encode()) + 3
            elif isinstance(cell, bytes):
                raise GoldRejected(Reason.UNSTABLE, f"a blob of {len(cell):,} bytes")
            elif isinstance(cell, float) and not math.isfinite(cell):
                raise GoldRejected(Reason.UNSTABLE, "a number that is not finite")
            else:
                size += 20
    if only_null:
        raise GoldRejected(Reason.NULL, "nothing but NULL")
    if size > MAX_RESULT_BYTES:
        raise GoldRejected(Reason.OVERSIZE, f"about {size:,} bytes of text")


def _stream(connection: apsw.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    """Rows of one read-only statement under the step budget. Raises apsw's errors, and GoldRejected
    at a second one."""
    calls = 0
    statements = 0

    def over_budget() -> bool:
        nonlocal calls
        calls += 1
        return calls * HANDLER_VM_STEPS > MAX_VM_STEPS

    def one_statement(cursor: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
        nonlocal statements
        statements += 1
        if statements > 1 or not cursor.is_readonly:
            raise GoldRejected(Reason.FAILING, "not one SELECT")
        return True

    cursor = connection.cursor()
    cursor.exec_trace = one_statement
    connection.set_progress_handler(over_budget, HANDLER_VM_STEPS)
    try:
        yield from cursor.execute(sql)
    finally:
        cursor.close(True)
        connection.set_progress_handler(None)


def _fetch(connection: apsw.Connection, sql: str, most: int) -> list[tuple[Any, ...]]:
    stream = _stream(connection, sql)
    try:
        return list(islice(stream, most))
    finally:
        stream.close()  # type: ignore[attr-defined]  # a generator: it must give the handler back at once


def _fetch_reversed(connection: apsw.Connection, sql: str) -> list[tuple[Any, ...]]:
    connection.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 1)
    try:
        return _fetch(connection, sql, MAX_ROWS + 1)
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_REVERSE_SCANORDER, 0)


def _window_is_open(connection: apsw.Connection, sql: str) -> bool:
    if (ways := settled(sql)) is None:
        return False
    try:
        ascending, descending = (_fetch(connection, way, MAX_ROWS + 1) for way in ways)
    except apsw.SQLError:  # a WITH table, a view or a table WITHOUT ROWID
        return False
    return not _same_rows(ascending, descending)


@contextmanager
def _mapped_errors() -> Iterator[None]:
    try:
        yield
    except apsw.InterruptError as error:
        raise GoldRejected(
            Reason.RUNAWAY, f"over {MAX_VM_STEPS:,} steps of SQLite's machine"
        ) from error
    except apsw.Error as error:
        raise GoldRejected(Reason.FAILING, str(error)) from error
    except UnicodeDecodeError as error:
        raise GoldRejected(Reason.UNSTABLE, "text that is not UTF-8") from error
    except RecursionError as error:
        raise GoldRejected(Reason.FAILING, "nested too deeply to be checked") from error
    except MemoryError as error:
        raise GoldRejected(Reason.FAILING, "SQLite ran out of memory") from error


def _sort_key(row: Iterable[Cell]) -> tuple[tuple[int, Any], ...]:
    return tuple(
        (0, 0)
        if cell is None
        else (1, float(f"{cell:.9g}"))
        if isinstance(cell, int | float)
        else (2, cell)
        for cell in row
    )


def _same_cell(left: Cell, right: Cell) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
    return left == right


def _same_rows(left: Sequence[tuple[Cell, ...]], right: Sequence[tuple[Cell, ...]]) -> bool:
    """Equal as bags of rows, floats within the tolerance."""
    if Counter(left) == Counter(right):  # first: the sort key below takes long numbers for equal
        return True
    if len(left) != len(right):
        return False
    pairs = zip(sorted(left, key=_sort_key), sorted(right, key=_sort_key), strict=True)
    return all(_same_cell(x, y) for a, b in pairs for x, y in zip(a, b, strict=True))
