"""Load the table of a file into DuckDB, and find out how SQLite is to hold its columns.

A text column becomes numbers, dates, times or booleans if all its cells are written so
(`data.cell_formats`). DuckDB decides the usual case, plain numbers, by itself.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import duckdb

from data.cell_formats import MISSING, column_of, is_missing
from data.column_names import AS_CODES, DAYS, Value, days_of, is_code, name_words
from data.sources.delimited_text import MAX_LINE_CHARS
from data.sources.layout import Table
from shared.errors import DataError
from shared.sqltext import quote_text

MAX_COLUMNS = 500  # of a file: each is read on its own, 15 s for 500, and 6 GB for 1,000
MEMORY = "2GB"  # of DuckDB, which spills to the disk
WHOLE = r"-?(?:0|[1-9]\d*)"
OPEN = r"-?[1-9]\d{0,2}\.\d{3}"  # thousands or decimals
NUMBER = rf"(?:{WHOLE}(?:\.\d*)?|-?\.\d+)(?:[eE][+-]?\d+)?"
LONG = 80  # characters: no number or date has more
SAMPLE = 10_000  # rows of a column by which most texts are known to be texts
TOTAL = re.compile(
    r"(?:grand |sub-?)?(?:totals?|sum|gesamt(?:summe|ergebnis)?|summe|insgesamt|somme|totale|suma"
    r"|totaal|итого|всего|合计|合計)(?:\W+(?:g[ée]n[ée]ral|(?-i:[A-Z]{3})))?\W*"
    r"|(?:average|mean|durchschnitt|mittelwert|moyenne|media|promedio)\W*",
    re.IGNORECASE,
)
# two cells such as 1.1 and 1.10, beside 1.9, if no cell occurs twice: chapters, not amounts
_NUMBERED = """
    SELECT a.{cell}, b.{cell} FROM t AS a JOIN t AS b ON b.{cell} = a.{cell} || '0'
    WHERE regexp_full_match(a.{cell}, '\\d+\\.[1-9]')
    AND EXISTS (FROM t WHERE {cell} = split_part(a.{cell}, '.', 1) || '.9')
    AND (SELECT count(*) = count(DISTINCT {cell}) FROM t WHERE {cell} <> '') LIMIT 1
"""

Duck = duckdb.DuckDBPyConnection


class Loaded(NamedTuple):
    """A column of the table t: its name in the file, its type in SQLite, the SQL of its values,
    what reads them further, what a user should know, and the mark of decimals (see `Column`)."""

    name: str
    kind: str
    values: str
    read: Callable[[Any], Value | None] | None = None
    note: str = ""
    decimal: str | None = ""


def connect(scratch: Path) -> Duck:
    """Open an empty database with limits, which spills to `scratch`."""
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "threads": 1,
        "temp_directory": str(scratch / "spilled"),
    }
    return duckdb.connect(Path(mkdtemp(dir=scratch)) / "duck.db", config=limits)


def check_width(shown: str, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise DataError(
            f"{shown} has {columns:,} columns, more than {MAX_COLUMNS}: leave some out, or make"
            " rows of them (one row per cell: key, name of the column, value)"
        )


def load_text(duck: Duck, table: Table, scratch: Path) -> list[Loaded]:
    """Load a table of text into t; return its columns, without those that have no name or cell."""
    plain = scratch / "plain.csv"
    with plain.open("w", encoding="utf-8", newline="") as file:
        rows = (record.cells for record in table.rows)
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    declared = ", ".join(f"'c{at}': 'VARCHAR'" for at in range(len(table.header)))
    duck.execute(
        "CREATE TABLE t AS FROM read_csv(?, auto_detect = false, header = false, delim = ',', "
        f"quote = '\"', escape = '\"', columns = {{{declared}}}, new_line = '\\n', "
        "parallel = false, max_line_size = ?)",
        [str(plain), 4 * MAX_LINE_CHARS],
    )
    plain.unlink()
    while _drop_total(duck, table):
        pass
    columns = [text_column(duck, f"c{at}", name) for at, name in enumerate(table.header)]
    marks = {column.decimal for column in columns if column and column.decimal}
    if len(marks) == 1:
        mark = marks.pop() or ""
        for at, column in enumerate(columns):
            if column and column.decimal is None:
                columns[at] = text_column(duck, f"c{at}", column.name, mark)
    kept = [column for column in columns if column]
    if table.unit == "row":  # of a workbook: scripts that write formulas store no results
        empty = "has no value: if it has formulas, open and save the workbook in Excel"
        kept = [one._replace(note=empty) if one.values == "NULL" else one for one in kept]
    return kept


def _cells(duck: Duck, cell: str, source: str = "t") -> Iterator[tuple[str, int]]:
    """Yield the different cells of a column, each with its number, as they come first."""
    duck.execute(
        f"SELECT left({cell}, {LONG + 1}), count(*) FROM {source} WHERE {cell} <> '' "
        "GROUP BY 1 ORDER BY min(rowid)"
    )
    while some := duck.fetchmany(SAMPLE):
        yield from some


def _drop_total(duck: Duck, table: Table) -> bool:
    """Remove the last row if it holds the totals or means of the rows above it; return whether."""
    last: Any = duck.execute("FROM t ORDER BY rowid DESC LIMIT 1").fetchone()
    filled = [cell for cell in last or () if cell]
    if len(filled) < 2 or not TOTAL.fullmatch(filled[0]):
        return False
    for at, cell in enumerate(last):
        column = column_of(lambda at=at: _cells(duck, f"c{at}"))  # type: ignore[misc]
        if cell and column.spelling and column.spelling[0] == "number":
            numbers = [(column.read(one), count) for one, count in _cells(duck, f"c{at}")]
            if len(numbers) == 1 and numbers[0][1] > 2:  # as of one year
                continue
            known = [(float(number), count) for number, count in numbers if number is not None]
            own = float(column.read(cell) or 0)
            total = math.fsum(number * count for number, count in known) - own
            rows = sum(count for _, count in known) - 1
            close = 0.005 * max(1, abs(own))
            if rows and min(abs(total - own), abs(total / rows - own)) <= close:
                duck.execute("DELETE FROM t WHERE rowid = (SELECT max(rowid) FROM t)")
                table.read_rows -= 1
                table.notes.append(
                    f"{table.name}: a last row of totals is left out: {', '.join(filled)}"
                )
                return True
    table.notes.append(f"{table.name}: the last row may be one of totals: {', '.join(filled)}")
    return False


def text_column(duck: Duck, cell: str, name: str, decimal: str = "") -> Loaded | None:
    """Return how to read a column of text; None if it has no name and no cell.

    `decimal` is the mark of decimals of the table's other columns, if they have one.
    """
    missing = f"lower({cell}) IN ({', '.join(map(quote_text, sorted(MISSING)))})"
    number, whole, dotted = (
        f"regexp_full_match({cell}, {quote_text(form)})" for form in (NUMBER, WHOLE, OPEN)
    )
    double = f"try_cast({cell} AS DOUBLE)"
    filled, known, figures, wholes, large, finite, example = duck.execute(
        f"SELECT count(*) FILTER ({cell} <> ''), count(*) FILTER (NOT {missing}), "
        f"count(*) FILTER ({number}), count(*) FILTER ({whole}), "
        f"coalesce(bool_or({whole} AND try_cast({cell} AS BIGINT) IS NULL), false), "
        f"coalesce(bool_and(isfinite({double})) FILTER ({number}), false), "
        f"CASE WHEN bool_and({dotted} OR {whole}) FILTER ({number}) "
        f"THEN any_value({cell}) FILTER ({dotted}) END FROM t"
    ).fetchall()[0]
    if not filled:
        return Loaded(name, "TEXT", "NULL") if name else None
    text = f"nullif(nullif({cell}, ''), '\\N')"  # of dumps of MySQL and PostgreSQL
    nulls = ""
    if filled > known:
        absent: Any = duck.execute(
            f"SELECT {cell} FROM t WHERE {missing} AND {cell} <> '' GROUP BY 1 ORDER BY min(rowid)"
        ).fetchmany(3)
        nulls = f"has NULL for {' and '.join(repr(one) for (one,) in absent)}"
    words = name_words(name)
    if not known or known > figures or (decimal == "," and example):
        sample = f"(SELECT {cell}, rowid FROM t LIMIT {SAMPLE})"
        column = column_of(lambda: _cells(duck, cell), decimal, _cells(duck, cell, sample), words)
        if not column.spelling:
            return Loaded(name, "TEXT", text, None, column.note, column.decimal)
        note = _joined(column.note, nulls)
        return Loaded(name, column.kind, text, column.read, note, column.decimal)
    if large or not finite:
        return Loaded(name, "TEXT", text)
    found_cells = (one for one, _ in _cells(duck, cell) if not is_missing(one))
    if is_code(words, "INTEGER" if wholes == known else "REAL", found_cells):
        return Loaded(name, "TEXT", text, None, AS_CODES)
    values = f"CASE WHEN NOT {missing} THEN {cell} END"
    if DAYS.search(words):
        numbers = [float(one) for one, _ in _cells(duck, cell) if not is_missing(one)]
        if found := days_of(words, numbers):
            day, note = found
            return Loaded(name, "TEXT", values, day, _joined(note, nulls))
    if wholes == known:
        return Loaded(name, "INTEGER", f"CAST({values} AS BIGINT)", None, nulls)
    if codes := duck.execute(_NUMBERED.format(cell=cell)).fetchone():
        return Loaded(name, "TEXT", text, None, f"stays text: {codes[0]!r} and {codes[1]!r} differ")
    note = f"is read with decimals: {example!r} is {float(example)}" if example else ""
    mark = None if example and not decimal else "."
    return Loaded(name, "REAL", f"CAST({values} AS DOUBLE)", None, _joined(note, nulls), mark)


def _joined(*notes: str) -> str:
    return ", and ".join(filter(None, notes))
