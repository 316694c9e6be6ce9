"""What is in a table's columns, as one short text each, from a bounded number of rows.

    'C', 'D', 'N'                       all values, by frequency, where they are few
    'Ann', 'Bo', 'Cid'; 57 different    the most frequent ones, where they are many
    0.5 to 99.9; 57 different           numbers and dates
    text of 12 to 340 characters        long texts; a blob's bytes likewise

A share of NULLs follows. Of a large table the same rows are read on every server: those at about
evenly spaced rowids, or its first ones if it has no rowid.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from env_server.sql.jobs import Cell, SqlResult
from env_server.sql.sandbox import SqlConnection
from env_server.sql.statement import run_query
from shared.sqltext import quote_identifier, quote_text

MAX_ROWS = 10_000  # read of a table
MAX_CELLS = 200_000  # and fewer rows of a wide one
MAX_STEPS = 20_000_000  # of all its statements: far less than the time of a job allows
FEW = 8  # values that are all shown
SHOWN = 3  # of more
MAX_VALUE_CHARS = 40  # a longer text is no value but prose: its length is shown
MAX_TEXT_CHARS = 100  # of a column's values, with their quotes and commas
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?")
_ROWIDS = ("rowid", "_rowid_", "oid")  # a column's own name hides the row's

# Values by their type, the shortest and longest text or blob, and how often each occurs.
_COUNTS = """
    SELECT typeof(c), CASE typeof(c) WHEN 'blob' THEN NULL WHEN 'text'
        THEN substr(c, 1, {chars}) ELSE c END AS v, min(length(c)), max(length(c)), count(*)
    FROM ({source}) GROUP BY 1, 2 ORDER BY 5 DESC, 2
"""
_FIRST = "SELECT {column} AS c FROM main.{table} NOT INDEXED LIMIT {rows}"
# one row of each step, at a place that differs from step to step, as values may come in turn
_SPACED = """
    WITH RECURSIVE span AS (SELECT (SELECT min({rowid}) FROM main.{table}) AS low,
        (SELECT max({rowid}) FROM main.{table}) - (SELECT min({rowid}) FROM main.{table}) AS width),
    place(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM place WHERE n < {rows} - 1),
    picked AS (SELECT DISTINCT (SELECT min({rowid}) FROM main.{table} AS its WHERE {rowid} >=
        span.low + span.width * (place.n + place.n * 618034 % 1000000 / 1000000.0) / {rows}) AS id
        FROM place, span)
    SELECT its.{column} AS c FROM picked CROSS JOIN main.{table} AS its ON its.{rowid} = picked.id
"""


@dataclass(frozen=True, slots=True)
class Value:
    """A distinct value of a column, or all its blobs: `kind` is SQLite's typeof."""

    kind: str
    cell: Cell
    shortest: int
    longest: int
    count: int


def column_values(connection: SqlConnection, asked: str) -> SqlResult:
    """Return a row (column, text) for each of the columns that `encode_columns` wrote into `asked`;
    `row_count` is the number of rows that were read, None if all.

    A column that can't be read within what is left of `MAX_STEPS` has an empty text. What depends
    on the machine or on other jobs (time, memory, a request to stop) is an error of the whole.
    """
    table, columns, all_columns, rows = orjson.loads(asked)
    most = max(FEW, min(MAX_ROWS, MAX_CELLS // max(1, len(all_columns))))
    taken = {name.lower() for name in all_columns}
    rowid = next((name for name in _ROWIDS if name not in taken), None)
    all_rows = rows is not None and rows <= most
    forms = [_FIRST] if all_rows or rowid is None else [_SPACED, _FIRST]
    found, steps, read = list[tuple[Cell, ...]](), 0, 0
    for column in columns:
        text = ""
        for form in forms:
            names = {"table": quote_identifier(table), "column": quote_identifier(column)}
            source = form.format(**names, rowid=rowid, rows=most)
            statement = _COUNTS.format(chars=MAX_VALUE_CHARS + 1, source=source)
            left = min(connection.limits.max_vm_steps, MAX_STEPS - steps)
            result = run_query(connection, statement, most, max_vm_steps=left)
            steps += result.vm_steps
            if result.error is None:
                values = [Value(*row) for row in result.rows]  # type: ignore[arg-type]
                total = sum(one.count for one in values)
                # rowids in clusters: few rows are at evenly spaced places
                if form is _SPACED and total < most // 2:
                    continue
                text, read = "" if result.truncated else describe_values(values), max(read, total)
                break
            if result.error_code not in ("sql_error", "sql_budget", "sql_denied") or (
                result.error_code == "sql_budget" and connection.exceeded != "steps"
            ):
                return result
        found.append((column, text))
    part = None if all_rows else read
    return SqlResult(["column", "values"], found, vm_steps=steps, row_count=part)


def describe_values(values: Sequence[Value]) -> str:
    """Return the text of a column with these values, the most frequent first."""
    total = sum(one.count for one in values)
    known = [one for one in values if one.kind != "null"]
    nulls = total - sum(one.count for one in known)
    if not total:
        return ""
    if not known:
        return "only NULL"
    text = _described(known)
    if nulls:
        share = round(100 * nulls / total)
        text += f"; {min(99, share) if share else 'under 1'} % NULL"
    return text


def _described(values: Sequence[Value]) -> str:
    kinds = {one.kind for one in values}
    if "blob" in kinds:
        return f"blob of {_span(values)} bytes" if len(kinds) == 1 else ""
    if any(one.kind == "text" and one.longest > MAX_VALUE_CHARS for one in values):
        return f"text of {_span(values)} characters"
    different = f"; {len(values)} different"
    shown = [_literal(one.cell) for one in values]
    if len(values) <= FEW and len(whole := ", ".join(shown)) <= MAX_TEXT_CHARS:
        return whole
    cells = [one.cell for one in values]
    numbers = "text" not in kinds
    if numbers or all(isinstance(cell, str) and _DATE.fullmatch(cell) for cell in cells):
        low, high = _literal(min(cells)), _literal(max(cells))  # type: ignore[type-var]
        return f"{low} to {high}{different}"
    some = shown[:SHOWN]
    while len(some) > 1 and len(", ".join(some)) > MAX_TEXT_CHARS:
        some.pop()
    return f"{', '.join(some)}{different}"


def _span(values: Sequence[Value]) -> str:
    low, high = min(one.shortest for one in values), max(one.longest for one in values)
    return str(low) if low == high else f"{low} to {high}"


def _literal(cell: Cell) -> str:
    return quote_text(cell) if isinstance(cell, str) else repr(cell)
