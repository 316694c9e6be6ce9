"""Convert a folder of CSV files to a SQLite database: one table per file, types from the cells."""

import codecs
import csv
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from data.sources.questions import delimiter_of
from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import new_database
from shared.console import counted
from shared.errors import DataError
from shared.sqltext import quote_identifier

SUFFIXES = (".csv", ".tsv")
MAX_CELL_CHARS = 1 << 30
MAX_INTEGER_CHARS = len(str(-(2**63)))
MISSING = {"", "na", "n/a", "nan", "null", "none"}  # NULL in a column of numbers
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_REAL = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_COMMA = re.compile(r"-?(?:0|[1-9]\d*),\d+")  # 2.5 as 2,5
_GROUPED = re.compile(r"-?[1-9]\d{0,2}(?:,\d{3})+")  # 1234 as 1,234
KINDS = ("INTEGER", "REAL", "TEXT")  # a column has the last that one of its cells needs
WITH_COMMAS = {"COMMA", "GROUPED", "COMMA OR GROUPED"}  # kinds of cells, not of columns


def csv_files(folder: Path, without: Sequence[Path] = ()) -> list[Path]:
    """Return the CSV files of a folder, or the file itself; not those in `without`."""
    inside = [folder] if folder.is_file() else sorted(folder.iterdir()) if folder.is_dir() else []
    others = {path.resolve() for path in without}
    files = [path for path in inside if path.suffix.lower() in SUFFIXES]
    if left := [path for path in files if path.resolve() not in others]:
        return left
    raise DataError(f"no .csv or .tsv file at {folder}: name a folder that has some")


def write_csv_database(
    files: Sequence[Path], target: Path, report: ImportReport, encoding: str | None = None
) -> None:
    """Write the database `target`, and list its tables in `report`. Raises `DataError`."""
    csv.field_size_limit(MAX_CELL_CHARS)
    twice = [name for name, n in Counter(path.stem.lower() for path in files).items() if n > 1]
    if twice:
        raise DataError(f"two files would become the table {twice[0]}: rename one")
    with new_database(target) as connection:
        for path in files:
            with _mapped_errors(path, encoding):
                _add_table(connection, path, _without_mark(encoding or "utf-8"), report)


def _without_mark(encoding: str) -> str:
    """Return the encoding that also removes a byte order mark. Raises `LookupError`."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding


def _add_table(
    connection: apsw.Connection, path: Path, encoding: str, report: ImportReport
) -> None:
    with path.open(encoding=encoding, newline="") as file:
        delimiter = delimiter_of(path, file.readline())

    def rows() -> Iterator[list[str]]:
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            width = 0
            for row in filter(None, reader):  # not the empty lines
                width = width or len(row)
                if len(row) != width:
                    problem = f"{path} line {reader.line_num} has {counted(len(row), 'cell')}"
                    remedy = f"quote cells that contain {delimiter!r}"
                    raise DataError(f"{problem}, its header {width}: {remedy}")
                yield row

    header = next(rows(), None)
    if header is None:
        raise DataError(f"{path} is empty: write the names of its columns in line 1, or remove it")
    columns = _column_names(path, header, report)
    seen: list[set[str]] = [set() for _ in columns]
    body = rows()
    next(body)
    count = 0
    for row in body:
        count += 1
        for found, cell in zip(seen, row, strict=True):
            if "TEXT" not in found:
                found.add(_kind(cell))
    if delimiter == ",":  # a cell with a comma was quoted: it is text
        seen = [found | {"TEXT"} if found & WITH_COMMAS else found for found in seen]
    types = {
        name: _column_kind(f"{path.stem}.{name}", found, report)
        for name, found in zip(columns, seen, strict=True)
    }
    declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in types.items())
    table = quote_identifier(path.stem)
    connection.execute(f"CREATE TABLE {table} ({declared})")
    body = rows()
    next(body)
    connection.executemany(
        f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})",
        ([_value(*pair) for pair in zip(row, types.values(), strict=True)] for row in body),
    )
    report.tables.append(ConvertedTable(path.stem, count, types))


def _column_names(path: Path, header: Sequence[str], report: ImportReport) -> list[str]:
    names = [name.strip() for name in header]
    for index, name in enumerate(names):
        if not name:
            names[index] = f"column_{index + 1}"
            report.problems.append(f"{path.name}: column {index + 1} has no name: {names[index]}")
    first: dict[str, int] = {}
    for index, name in enumerate(names, 1):
        if (other := first.setdefault(name.lower(), index)) != index:
            both = f"columns {other} and {index}"
            raise DataError(f"{path} has the column {name!r} twice ({both}): rename one")
    return names


def _kind(cell: str) -> str:
    text = cell.strip()
    if text.lower() in MISSING:
        return ""
    if _INTEGER.fullmatch(text):  # a longer one is a code
        fits = len(text) <= MAX_INTEGER_CHARS and -(2**63) <= int(text) < 2**63
        return "INTEGER" if fits else "TEXT"
    if _GROUPED.fullmatch(text):
        return "COMMA OR GROUPED" if _COMMA.fullmatch(text) else "GROUPED"
    kind = "REAL" if _REAL.fullmatch(text) else "COMMA" if _COMMA.fullmatch(text) else "TEXT"
    return kind if kind == "TEXT" or math.isfinite(_real(text)) else "TEXT"


def _column_kind(column: str, found: set[str], report: ImportReport) -> str:
    """Return a column's type, given the kinds of its cells; report how commas are read."""
    if not found & WITH_COMMAS:
        return max(found - {""}, key=KINDS.index, default="TEXT")
    if found & {"REAL", "TEXT"}:
        return "TEXT"
    if "COMMA" in found and "GROUPED" not in found:
        report.problems.append(
            f"{column} is read with decimal commas: 2,5 is 2.5; if these are lists, write "
            "them with spaces"
        )
        return "REAL"
    remedy = "write decimals with a point, and thousands without separators"
    report.problems.append(f"{column} stays text, as 1,234 may be 1.234 or 1234: {remedy}")
    return "TEXT"


def _value(cell: str, kind: str) -> Any:
    if kind == "TEXT":
        return cell or None
    if cell.strip().lower() in MISSING:
        return None
    return int(cell) if kind == "INTEGER" else _real(cell)


def _real(text: str) -> float:
    """Return a number that is written with a decimal point or comma."""
    return float(text.replace(",", "."))


@contextmanager
def _mapped_errors(path: Path, encoding: str | None) -> Iterator[None]:
    try:
        yield
    except UnicodeError as error:
        remedy = "name its encoding, for example --encoding cp1252, or save it as UTF-8"
        raise DataError(f"{path} is not {encoding or 'UTF-8'} ({error}): {remedy}") from error
    except LookupError as error:
        raise DataError(f"--encoding {encoding} is not an encoding that Python knows") from error
    except (csv.Error, apsw.Error) as error:
        raise DataError(f"{path}: {error}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
