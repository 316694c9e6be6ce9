"""`SqlJob` and `SqlResult`, and their form on a pipe: JSON, as what a jailed process sends must not
be able to run code.

A frame is a length (4 bytes, little-endian) and as many bytes of JSON: a list of `[number, kind,
db_path, sql, max_rows, explain]` to a worker, of `[number, *fields of the result without its rows,
rows, tagged]` from it. `tagged` reports whether cells have no JSON form: `{"b": base64}` is a blob,
`{"f": "inf"}` a float.

Each worker shares a memory page with its parent, the marker. The worker writes the number of the
job that runs (0: none), its start in seconds of the monotonic clock and of the worker's CPU time,
and the number of the latest job that it has begun. The parent writes up to which number the jobs
were reassigned, which the worker skips, and the number of a job to stop, which then fails with
`STOPPED`.
"""

import base64
import math
import mmap
import struct
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import orjson

Cell = int | float | str | bytes | None
Row = tuple[Cell, ...]

LENGTH = struct.Struct("<I")
# native: each number is read at once, while the other process may be writing
MARKER = struct.Struct("@Qdd")
NUMBER = struct.Struct("@Q")  # the marker's first field; the numbers of three jobs follow it
TIMES = struct.Struct("@dd")  # its others
TIMES_AT = NUMBER.size
REASSIGNED_AT = MARKER.size
STOP_AT = REASSIGNED_AT + NUMBER.size
BEGUN_AT = STOP_AT + NUMBER.size
MARKER_BYTES = mmap.PAGESIZE
STOPPED = "stopped"  # the error code of a job that its parent stopped; never a caller's result


class JobKind(StrEnum):
    """What a job does. `sql` is a statement, or for DESCRIBE and SAMPLE a table's name."""

    QUERY = "query"  # an agent's statement, jailed
    GOLD = "gold"  # a data set's statement, jailed, on a connection without agents' statements
    TABLES = "tables"  # the tables' names, one per row, in creation order
    DESCRIBE = "describe"  # rows of (column, type, is_key, references)
    SAMPLE = "sample"  # a table's first rows in stored order
    VALUES = "values"  # rows of (column, what is in it): see `encode_columns`


class SqlJob(NamedTuple):
    """One piece of work for SQLite."""

    kind: str
    db_path: str
    sql: str = ""
    max_rows: int | None = None  # None: as many as the limits allow
    explain: tuple[str, ...] = ()  # of `shared.models.Explanation`: what a QUERY's result explains


@dataclass(slots=True)
class SqlResult:
    """The result of a job. `error` is one line for the agent, without paths; `error_code` is
    no_such_table, sql_error (SQLite rejects it), sql_denied, sql_budget (over a limit), sql_killed
    (it killed two workers) or db_error (the data's fault, never the agent's).
    """

    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False  # there are more rows than `rows`
    error: str | None = None
    error_code: str | None = None
    vm_steps: int = 0  # rounded down to whole callbacks of the step counter
    reads_data: bool = False  # a QUERY or GOLD read a table's cells or counted its rows
    row_count: int | None = None  # of DESCRIBE: the rows, if counted; of VALUES: read, if not all
    remarks: list[str] = field(default_factory=list)  # lines that explain a QUERY's result


_all_but_rows = attrgetter(*(one.name for one in fields(SqlResult) if one.name != "rows"))
# Errors that depend on nothing but data, limits and statement: not on time or on other jobs.
REPEATABLE = (None, "sql_error", "sql_denied", "no_such_table")

T = TypeVar("T")
Jobs = Generator[SqlJob, SqlResult, T]  # asks for SQL, and is sent its results


async def drive_async(jobs: Jobs[T], run: Callable[[SqlJob], Awaitable[SqlResult]]) -> T:
    """Run a generator of jobs to its end on an event loop."""
    try:
        job = next(jobs)
        while True:
            job = jobs.send(await run(job))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class Marker(mmap.mmap):
    """The page that a worker shares with its parent. A number only stands beside its own times."""

    def __new__(cls, descriptor: int) -> "Marker":
        return super().__new__(cls, descriptor, MARKER_BYTES)

    def get(self, place: int) -> int:
        return int(NUMBER.unpack_from(self, place)[0])

    def put(self, place: int, number: int) -> None:
        NUMBER.pack_into(self, place, number)

    def begin(self, number: int, now_s: float = 0.0, cpu_s: float = 0.0) -> None:
        if number:
            self.put(BEGUN_AT, number)
        self.put(0, 0)
        TIMES.pack_into(self, TIMES_AT, now_s, cpu_s)
        self.put(0, number)

    def running(self) -> tuple[int, float, float]:
        """Return the number of the job that runs, or 0, and its start in wall and CPU seconds."""
        while True:
            number, began_s, began_cpu_s = MARKER.unpack_from(self)
            if self.get(0) == number:  # else the times may be the next job's
                return number, began_s, began_cpu_s


def encode_jobs(jobs: list[tuple[int, SqlJob]]) -> bytes:
    return _frame(orjson.dumps([(number, *job) for number, job in jobs]))


def decode_jobs(body: bytes) -> list[tuple[int, SqlJob]]:
    return [
        (number, SqlJob(kind, path, sql, max_rows, tuple(explain)))
        for number, kind, path, sql, max_rows, explain in orjson.loads(body)
    ]


def encode_columns(
    table: str, columns: Sequence[str], all_columns: Sequence[str], rows: int | None
) -> str:
    """Return the text of a VALUES job: some columns of a table that has `all_columns` and `rows`
    rows, None if unknown."""
    return orjson.dumps([table, columns, all_columns, rows]).decode()


def encode_results(results: list[tuple[int, SqlResult]]) -> bytes:
    items = []
    for number, result in results:
        tagged = _need_tags(result.rows)
        rows: Any = [[_tag(cell) for cell in row] for row in result.rows] if tagged else result.rows
        items.append((number, *_all_but_rows(result), rows, tagged))
    return _frame(orjson.dumps(items))


def decode_results(body: bytes) -> list[tuple[int, SqlResult]]:
    results = []
    for number, columns, *rest, rows, tagged in orjson.loads(body):
        if tagged:
            rows = [[_untag(cell) for cell in row] for row in rows]
        results.append((number, SqlResult(columns, list(map(tuple, rows)), *rest)))
    return results


def _frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def _need_tags(rows: list[Row]) -> bool:
    cells = list(chain.from_iterable(rows))
    kinds = set(map(type, cells))
    return bytes in kinds or (
        float in kinds and not all(math.isfinite(cell) for cell in cells if type(cell) is float)
    )


def _tag(cell: Cell) -> Any:
    if isinstance(cell, bytes):
        return {"b": base64.b64encode(cell).decode()}
    if isinstance(cell, float) and not math.isfinite(cell):
        return {"f": repr(cell)}
    return cell


def _untag(cell: Any) -> Cell:
    if not isinstance(cell, dict):
        return cell  # type: ignore[no-any-return]
    return base64.b64decode(cell["b"]) if "b" in cell else float(cell["f"])
