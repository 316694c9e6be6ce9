"""Convert a folder of table files to a SQLite database, read by DuckDB: one table per file.

A text column is INTEGER or REAL if all its cells are numbers of one form (1234.5, 1,234.5 or
1.234,5); cells of `MISSING` are NULL then. Leading zeros, a plus sign or an integer of more than 64
bits make it text: a code. So does 1,234 in all cells, which may be 1.234 or 1234.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import apsw
import duckdb

from data.sources.questions import delimiter_of
from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import new_database
from shared.console import counted
from shared.dataset import check_inside
from shared.errors import DataError
from shared.sqltext import RESERVED, quote_identifier, quote_text

TEXT_SUFFIXES, LINE_SUFFIXES = (".csv", ".tsv"), (".jsonl", ".ndjson")
SUFFIXES = (*TEXT_SUFFIXES, *LINE_SUFFIXES, ".parquet")
MAX_LINE_BYTES = 1 << 26
FETCHED_ROWS = 500  # at a time: of cells of a megabyte, 500 MB per column
MAX_COLUMNS = 500  # of a file: each is read on its own, 15 s for 500, and 6 GB for 1,000
MEMORY = "2GB"  # of DuckDB, which spills to the disk
# DuckDB's types as SQLite's; all others become text
INTEGERS = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
    *("UTINYINT", "USMALLINT", "UINTEGER"),
)
REALS = ("FLOAT", "DOUBLE", "DECIMAL")
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
GUESS = "cp1252"  # what Windows writes in Western Europe and America
CHUNK_CHARS = 1 << 20
_CONTROL = re.compile("[\0-\x08\x0e-\x1f]")  # no text file has them
MISSING = ("", "-", "na", "n/a", "#n/a", "nan", "null", "none")
SPACE = quote_text(" \t\u00a0\u202f")
SIGNS = "[$€£¥₹%]"
INTEGER = r"-?(?:0|[1-9]\d*)"
# forms of numbers: what all cells match, what separates thousands, and decimals
PLAIN = (rf"(?:{INTEGER}(?:\.\d*)?|-?\.\d+)(?:[eE][+-]?\d+)?", "", ".")
GROUPED = (
    (r"-?(?:0|[1-9]\d{0,2}(?:,\d{3})*|[1-9]\d*)(?:\.\d+)?", ",", "."),
    (r"-?(?:0|[1-9]\d{0,2}(?:\.\d{3})*|[1-9]\d*)(?:,\d+)?", ".", ","),
)


class Column(NamedTuple):
    """A column's type in SQLite, the SQL of its values in DuckDB, and what a user should know."""

    kind: str
    values: str
    note: str = ""


def table_files(folder: Path, without: Sequence[Path] = ()) -> list[Path]:
    """Return the table files of a folder, or the file itself; not those in `without`."""
    inside = [folder] if folder.is_file() else sorted(folder.iterdir()) if folder.is_dir() else []
    others = {path.resolve() for path in without}
    files = [path for path in inside if path.suffix.lower() in SUFFIXES]
    if left := [path for path in files if path.resolve() not in others]:
        if folder.is_dir():
            check_inside(folder, left)
        return left
    raise DataError(f"no {', '.join(SUFFIXES)} file at {folder}: name a folder that has some")


def write_database(files: Sequence[Path], target: Path, report: ImportReport) -> None:
    """Write the database `target`, and list its tables in `report`.

    Raise one `DataError` for all files that can't be read.
    """
    faults: list[str] = []
    taken: set[str] = set()
    with new_database(target) as connection:
        for path in files:
            name = table_name(path).lower()
            try:
                if name in taken:
                    raise DataError(f"two files would become the table {name}: rename one")
                taken.add(name)
                with _mapped_errors(path), TemporaryDirectory(prefix="sqlenv-import-") as scratch:
                    _add_table(connection, path, Path(scratch), report)
            except DataError as error:
                faults.append(error.message)
        if faults:
            raise DataError("; ".join(faults))


def _add_table(
    connection: apsw.Connection, path: Path, scratch: Path, report: ImportReport
) -> None:
    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "threads": 1,
        "temp_directory": str(scratch / "spilled"),
    }
    with duckdb.connect(scratch / "duck.db", config=limits) as duck:
        if path.suffix.lower() in TEXT_SUFFIXES:
            if _as_utf8(path, scratch / "utf8") == GUESS:
                report.notes.append(f"{path.name} is no UTF-8: it is read as {GUESS}")
            header = _load_text(duck, path, scratch / "utf8", report)
            columns = [_text_column(duck, f"c{index}") for index in range(len(header))]
        else:
            header, columns = _load_typed(duck, path)
        names, title = _column_names(path, header, report), table_name(path)
        if title != path.stem:
            report.notes.append(f"{path.name}: its table is called {title}")
        for name, column in zip(names, columns, strict=True):
            if column.note:
                report.notes.append(f"{title}.{name} {column.note}")
        types = {name: column.kind for name, column in zip(names, columns, strict=True)}
        table = quote_identifier(title)
        declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in types.items())
        connection.execute(f"CREATE TABLE {table} ({declared})")
        values = ", ".join(column.values for column in columns)
        duck.execute(f"SELECT {values} FROM t ORDER BY rowid")
        insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
        count = 0
        while rows := duck.fetchmany(FETCHED_ROWS):
            connection.executemany(insert, rows)
            count += len(rows)
        report.tables.append(ConvertedTable(title, count, types))


def _as_utf8(path: Path, target: Path) -> str:
    """Write the text of `path` to `target` as UTF-8; return the encoding that it is in.

    The encoding is that of a byte order mark, UTF-8, or `GUESS`. Raise `DataError` if none fits.
    """
    with path.open("rb") as file:
        start = file.read(4)
    marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    problems = []
    for name in [marked] if marked else ["utf-8", GUESS]:
        try:
            with (
                path.open(encoding=name, newline="") as file,
                target.open("w", encoding="utf-8", newline="") as copy,
            ):
                while text := file.read(CHUNK_CHARS):
                    if found := _CONTROL.search(text):
                        raise UnicodeError(f"it has the control character {found[0]!r}")
                    copy.write(text)
            return name
        except UnicodeError as error:
            problems.append(f"{path} is not {name.upper()} ({error})")
    raise DataError(f"{problems[0]}: save it as UTF-8")


def _load_text(
    duck: duckdb.DuckDBPyConnection, path: Path, utf8: Path, report: ImportReport
) -> list[str]:
    """Load a CSV file into the table t with columns c0, c1, ... of text; return its header."""
    with utf8.open(encoding="utf-8", newline="") as file:
        first = file.readline()
        delimiter = delimiter_of(path, first)
        header = next(csv.reader(chain([first], file), delimiter=delimiter), [])
    if not header:
        raise DataError(f"{path} is empty: write the names of its columns in line 1, or remove it")
    width = len(header)
    _check_width(path, width)
    declared = ", ".join(f"'c{index}': 'VARCHAR'" for index in range(width + 1))
    duck.execute(
        "CREATE TABLE t AS FROM read_csv(?, auto_detect = false, header = true, "
        f"delim = ?, quote = '\"', escape = '\"', columns = {{{declared}}}, nullstr = '\x01', "
        "null_padding = true, strict_mode = false, parallel = false, max_line_size = ?)",
        [str(utf8), delimiter, MAX_LINE_BYTES],
    )
    last, beyond = f"c{width - 1}", f"trim(c{width}, ' ')"
    counts = f"count(*) FILTER ({last} IS NULL), list(rowid + 1) FILTER ({beyond} <> '')"
    short, long = duck.execute(f"SELECT {counts} FROM t").fetchall()[0]
    if short:
        what = f"{path.name}: {counted(short, 'row')} of fewer cells than the header's {width}"
        report.notes.append(f"{what}: the others are NULL")
    if long:
        what = f"{path.name}: {counted(len(long), 'row')} of more cells than the header's {width}"
        remedy = f"quote cells that contain {delimiter!r}"
        report.problems.append(f"{what} (first: row {long[0]}), left out: {remedy}")
        duck.execute(f"DELETE FROM t WHERE {beyond} <> ''")
    return header


def _check_width(path: Path, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise DataError(
            f"{path} has {columns:,} columns, more than {MAX_COLUMNS}: leave some out, or make rows"
            " of them (one row per cell: key, name of the column, value)"
        )


def table_name(path: Path) -> str:
    """Return the name of a file's table."""
    return _plain(path.stem) or "table_1"


def _plain(text: str) -> str:
    """Return a name that SQL reads without quotes: `Rent_EUR` for "Rent (EUR)"."""
    name = "_".join(re.findall(r"\w+", text))
    if name[:1].isdigit():
        return f"_{name}"
    return f"{name}_" if RESERVED.fullmatch(name) else name


def _column_names(path: Path, header: Sequence[str], report: ImportReport) -> list[str]:
    """Return distinct plain names: an empty one is numbered, and so is one that came before."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    plain_first = sorted(
        enumerate(header, 1), key=lambda one: not one[1].strip() or _plain(one[1]) != one[1].strip()
    )
    for index, text in plain_first:
        base = _plain(text) or f"column_{index}"
        name, number = base, 2
        while name.lower() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        found[index] = name
    names = [found[index] for index in sorted(found)]
    renamed = [
        f"{repr(old) if old.strip() else 'a missing name'} is called {name}"
        for old, name in zip(header, names, strict=True)
        if name != old.strip()
    ]
    if renamed:
        report.notes.append(f"{path.name}: {', '.join(renamed)}")
    return names


def _text_column(duck: duckdb.DuckDBPyConnection, name: str) -> Column:
    """Return how to read a column of text: as numbers if all cells are, else as it is."""
    text = f"trim({name}, {SPACE})"
    missing = f"lower({text}) IN ({', '.join(map(quote_text, MISSING))})"
    known = f"FROM t WHERE {name} IS NOT NULL AND NOT {missing}"
    signs = f"regexp_extract({text}, {quote_text(SIGNS)})"
    sign, other = duck.execute(f"SELECT min({signs}), max({signs}) {known}").fetchall()[0]
    if sign and sign == other:  # before a number, after its minus, or behind it
        ends = quote_text(rf"^(-?)[{sign}]\s*|\s*[{sign}]$")
        text = rf"trim(regexp_replace({text}, {ends}, '\1'), {SPACE})"
    forms = (PLAIN, *GROUPED)
    tests = [f"bool_and(regexp_full_match({text}, {quote_text(form[0])}))" for form in forms]
    fits = duck.execute(f"SELECT {', '.join(tests)} {known}").fetchall()[0]
    found = [form for form, fit in zip(forms, fits, strict=True) if fit]
    if PLAIN in found:
        found = [PLAIN]
    if len(found) == 1:
        _, thousands, decimal = found[0]
        number = f"replace(replace({text}, '{thousands}', ''), '{decimal}', '.')"
        whole = f"regexp_full_match({number}, {quote_text(INTEGER)})"
        integers, large, finite = duck.execute(
            f"SELECT bool_and({whole}), bool_or({whole} AND try_cast({number} AS BIGINT) IS NULL), "
            f"bool_and(isfinite(try_cast({number} AS DOUBLE))) {known}"
        ).fetchall()[0]
        if finite and not large:
            kind, cast = ("INTEGER", "BIGINT") if integers else ("REAL", "DOUBLE")
            return Column(kind, f"CASE WHEN NOT {missing} THEN CAST({number} AS {cast}) END")
    numeric = " OR ".join(f"regexp_full_match({text}, {quote_text(form[0])})" for form in forms)
    numbers, cells, other = duck.execute(
        f"SELECT count(*) FILTER ({numeric}), count(*), any_value({name}) FILTER (NOT ({numeric})) "
        f"{known}"
    ).fetchall()[0]
    odd = f"stays text: {numbers} of {cells} cells are numbers, and not {other!r}"
    return Column("TEXT", f"nullif({name}, '')", odd if cells > numbers > cells / 2 else "")


def _load_typed(duck: duckdb.DuckDBPyConnection, path: Path) -> tuple[list[str], list[Column]]:
    """Load a file of JSON lines or a Parquet file into the table t, with its own types."""
    read = "read_parquet(?)"
    if path.suffix.lower() in LINE_SUFFIXES:
        read = (
            "read_json(?, format = 'newline_delimited', records = true, maximum_depth = 1, "
            "sample_size = -1, map_inference_threshold = -1)"
        )
    described = duck.execute(f"DESCRIBE FROM {read}", [str(path)]).fetchall()
    _check_width(path, len(described))
    duck.execute(f"CREATE TABLE t AS FROM {read}", [str(path)])
    described = duck.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 't'"
    ).fetchall()
    names = [str(name) for name, _ in described]
    kinds = [str(full).partition("(")[0] for _, full in described]
    cells = list(map(quote_identifier, names))
    return names, [
        _json_column(duck, cell) if kind == "JSON" else _typed_column(kind, cell)
        for cell, kind in zip(cells, kinds, strict=True)
    ]


def _typed_column(kind: str, cell: str) -> Column:
    if kind in INTEGERS:
        return Column("INTEGER", f"CAST({cell} AS BIGINT)")
    if kind in REALS:
        number = f"CAST({cell} AS DOUBLE)"
        return Column("REAL", f"CASE WHEN NOT isnan({number}) THEN {number} END")
    return Column("BLOB", cell) if kind == "BLOB" else Column("TEXT", f"CAST({cell} AS VARCHAR)")


def _json_column(duck: duckdb.DuckDBPyConnection, cell: str) -> Column:
    """Return how to read a column of JSON values: as numbers if all are, else as text."""
    text = f"CASE WHEN json_type({cell}) <> 'NULL' THEN {cell}->>'$' END"
    large = f"regexp_full_match({text}, '-?\\d+') AND try_cast({text} AS BIGINT) IS NULL"
    types = f"list(DISTINCT json_type({cell})) FILTER (json_type({cell}) <> 'NULL')"
    found, beyond = duck.execute(f"SELECT {types}, bool_or({large}) FROM t").fetchall()[0]
    kinds = set(found or ())
    if kinds == {"BOOLEAN"}:
        return Column("INTEGER", f"CAST(CAST({text} AS BOOLEAN) AS BIGINT)")
    if not kinds or beyond or not kinds <= {"BIGINT", "UBIGINT", "DOUBLE"}:
        return Column("TEXT", text)
    kind, cast = ("REAL", "DOUBLE") if "DOUBLE" in kinds else ("INTEGER", "BIGINT")
    return Column(kind, f"CAST({text} AS {cast})")


@contextmanager
def _mapped_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (csv.Error, apsw.Error, duckdb.Error) as error:
        if isinstance(error, duckdb.OutOfMemoryException) or "failed to pin block" in str(error):
            remedy = "split it into smaller files, or leave out its longest cells"
            raise DataError(f"{path} takes over {MEMORY} of memory to read: {remedy}") from error
        raise DataError(f"{path}: {' '.join(str(error).split())[:300]}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
