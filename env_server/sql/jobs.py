"""`SqlJob` and `SqlResult`, and their form on a pipe: JSON, since a frame from a jailed process
must not execute.

A frame is a length (4 bytes, little-endian) and that many bytes of JSON. To a worker it is a list
of `[number, kind, db_path, sql, max_rows]`, from a worker a list of `[number, *fields of the
result, tagged]`. A cell that JSON lacks is an object: `{"b": base64}` a blob, `{"f": "inf"}` a
float that is not finite. `tagged`: there are any.

Beside the pipe, each worker shares a page with its parent, the marker: the number of the job that
runs (0: none) and when it began, in seconds of the monotonic clock and of the worker's CPU time. So
the parent knows which job to blame for a dead worker, however many of one frame are unanswered, and
how long it has run. The other way it says up to which number the jobs sent are somebody else's by
now: those the worker leaves out.
"""

import base64
import math
import mmap
import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

Cell = int | float | str | bytes | None
Row = tuple[Cell, ...]

LENGTH = struct.Struct("<I")
# native, so that each number is written at once; the other process may be reading
MARKER = struct.Struct("@Qdd")
LEFT_OUT = struct.Struct("@Q")
LEFT_OUT_AT = MARKER.size
MARKER_BYTES = mmap.PAGESIZE


class JobKind(StrEnum):
    """What a job does. Only QUERY and GOLD run SQL that somebody wrote."""

    QUERY = "query"  # an agent's statement, jailed
    # a data set's statement, jailed too, on a connection that no agent's statement touches
    GOLD = "gold"
    TABLES = "tables"  # the tables' names, one a row, in creation order
    # `sql` is a table's name as TABLES gives it; a row is (column, type, is_key, references)
    DESCRIBE = "describe"
    SAMPLE = "sample"  # `sql` is a table's name as TABLES gives it; its first rows in stored order


@dataclass(frozen=True, slots=True)
class SqlJob:
    """One piece of work for SQLite. `max_rows`: how many to return at most; None is the policy's
    own number."""

    kind: str
    db_path: str
    sql: str = ""
    max_rows: int | None = None


@dataclass(slots=True)
class SqlResult:
    """What a job gave. `error` is one line for the agent, free of paths; `error_code` classifies
    it:

    no_such_table     the statement or the argument names no table of the database
    sql_error         SQLite refuses the statement
    sql_denied        the policy refuses it: a write, the catalogue, a function that is not deterministic, ...
    sql_budget        over the limit on steps, memory or size
    sql_killed        it cost two worker processes their lives
    db_error          the file can't be read: the data's fault, never the agent's
    """

    columns: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    truncated: bool = False  # there are more rows than `rows`
    error: str | None = None
    error_code: str | None = None
    vm_steps: int = 0  # rounded down to whole callbacks of the step counter
    # of QUERY and GOLD: tables that the statement reads, sorted
    tables_read: list[str] = field(default_factory=list)
    row_count: int | None = None  # of DESCRIBE: the table's rows


_FIELDS = (
    "columns",
    "rows",
    "truncated",
    "error",
    "error_code",
    "vm_steps",
    "tables_read",
    "row_count",
)


def encode_jobs(jobs: list[tuple[int, SqlJob]]) -> bytes:
    """Numbered jobs as a frame."""
    return _frame(
        orjson.dumps(
            [(number, job.kind, job.db_path, job.sql, job.max_rows) for number, job in jobs]
        )
    )


def decode_jobs(body: bytes) -> list[tuple[int, SqlJob]]:
    """The jobs of a frame's body."""
    return [(number, SqlJob(*fields)) for number, *fields in orjson.loads(body)]


def encode_results(results: list[tuple[int, SqlResult]]) -> bytes:
    """Numbered results as a frame."""
    items: list[Any] = []
    for number, result in results:
        tagged = any(_is_special(cell) for row in result.rows for cell in row)
        rows: Any = [[_tag(cell) for cell in row] for row in result.rows] if tagged else result.rows
        fields = [rows if name == "rows" else getattr(result, name) for name in _FIELDS]
        items.append([number, *fields, tagged])
    return _frame(orjson.dumps(items))


def decode_results(body: bytes) -> list[tuple[int, SqlResult]]:
    """The results of a frame's body."""
    results = []
    for number, columns, rows, *rest, tagged in orjson.loads(body):
        if tagged:
            rows = [[_untag(cell) for cell in row] for row in rows]
        results.append((number, SqlResult(columns, list(map(tuple, rows)), *rest)))
    return results


def _frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def _is_special(cell: Cell) -> bool:
    kind = type(cell)
    return kind is bytes or (kind is float and not math.isfinite(cell))  # type: ignore[arg-type]


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
