"""Convert a folder of table files to a SQLite database: one table per file, or per sheet of one."""

import csv
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import duckdb

from data.cell_formats import plain
from data.sources import duck_tables
from data.sources.duck_tables import Duck, Loaded, check_width, connect, load_text
from data.sources.layout import check_lost
from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import DUMP, new_database
from data.sources.sqlite_files import SUFFIXES as DATABASES
from data.sources.text_and_sheets import PACKED, SHEETS, TEXTS, Found, NotRead, tables_in, unpacked
from data.sources.typed_files import TYPED, load_typed
from shared.dataset import check_inside
from shared.errors import DataError
from shared.sqltext import RESERVED, quote_identifier

SUFFIXES = (*TEXTS, *SHEETS, *TYPED, *PACKED)
PERHAPS = (".txt", ".dat")  # a table only if they have two columns
FETCHED_ROWS = 500  # at a time: of cells of a megabyte, 500 MB per column


def table_files(folder: Path, report: ImportReport, without: Sequence[Path] = ()) -> list[Path]:
    """Return the table files of a folder, or the file itself; not those in `without`.

    The others are named in `report`.
    """
    inside = [folder] if folder.is_file() else sorted(folder.iterdir()) if folder.is_dir() else []
    others = {path.resolve() for path in without}
    files = []
    for path in inside:
        if path.resolve() in others or path.name.startswith((".", "~$")):
            continue
        if path.suffix.lower() in SUFFIXES and path.is_file():
            files.append(path)
        else:
            report.problems.append(f"{path.name} is not read: {_way_in(path)}")
    if files:
        if folder.is_dir():
            check_inside(folder, files)
        return files
    found = "".join(f"{problem}; " for problem in report.problems[:3])
    raise DataError(
        f"{found}no {', '.join(SUFFIXES)} file at {folder}: name a folder that has some"
    )


def _way_in(path: Path) -> str:
    if path.is_dir():
        return "it is a folder: import it on its own"
    known = path.suffix.lower() in (DUMP, *DATABASES)
    return "use 'import sqlite'" if known else "its kind is not known"


def write_database(
    files: Sequence[Path], target: Path, report: ImportReport, *, skip_bad_rows: bool = False
) -> dict[tuple[str, str], str]:
    """Write the database `target`, list its tables in `report`, and return those that have another
    name than their file, by that name in lower case.

    `skip_bad_rows`: go on even if a file loses more than a few of its rows. Raise one `DataError`
    for all files that can't be read.
    """
    faults: list[str] = []
    taken: dict[str, str] = {}
    renamed: dict[tuple[str, str], str] = {}
    with new_database(target) as connection:
        for path in files:
            try:
                with _mapped_errors(path), TemporaryDirectory(prefix="sqlenv-import-") as scratch:
                    for found in unpacked(path, Path(scratch)):
                        for title, loaded, duck in _tables(
                            found, Path(scratch), report, skip_bad_rows
                        ):
                            if title.lower() in taken:
                                both = f"{taken[title.lower()]} and {found.name}"
                                raise DataError(f"{both} would become one table: rename a file")
                            taken[title.lower()] = found.name
                            if title != found.stem:
                                renamed["", found.stem.lower()] = title
                            _write_table(connection, duck, found.name, title, loaded, report)
            except NotRead as error:
                report.problems.append(error.message)
            except DataError as error:
                faults.append(error.message)
        if faults or not report.tables:
            raise DataError("; ".join(faults or report.problems))
    return renamed


def _tables(
    found: Found, scratch: Path, report: ImportReport, skip_bad_rows: bool
) -> Iterator[tuple[str, list[Loaded], Duck]]:
    """Yield the name and the columns of each table of a file, with the DuckDB that holds it."""
    if found.suffix in TYPED:
        with connect(scratch) as duck:
            yield table_name(found.stem), load_typed(duck, found, scratch), duck
        return
    if found.suffix not in (*TEXTS, *SHEETS):
        raise NotRead(f"{found.shown} is not read: {_way_in(found.path)}")
    tables = 0
    for sheet, table in tables_in(found, scratch):
        if found.suffix in PERHAPS and len(table.header) < 2:
            continue
        tables += 1
        check_width(found.shown, len(table.header))
        with connect(scratch) as duck:
            columns = load_text(duck, table, scratch)
            check_lost(table, skip_bad_rows)
            report.problems += table.lost
            report.notes += table.notes
            yield table_name(f"{found.stem} {sheet}".strip()), columns, duck
    if not tables and found.suffix in PERHAPS:
        raise NotRead(f"{found.shown} is not read: it has no table")
    if not tables:
        remedy = "write the names of its columns in line 1, or remove it"
        raise DataError(f"{found.shown} is empty: {remedy}")


def _write_table(
    connection: apsw.Connection,
    duck: Duck,
    file: str,
    title: str,
    columns: Sequence[Loaded],
    report: ImportReport,
) -> None:
    if title.lower() in (one.name.lower() for one in report.tables):
        raise DataError(f"two files would become the table {title.lower()}: rename one")
    header = [column.name.strip() for column in columns]
    names = plain_names(header)
    renamed = [
        f"{repr(old) if old else 'a missing name'} is called {name}"
        for old, name in zip(header, names, strict=True)
        if name != old
    ]
    if renamed:
        report.notes.append(f"{file}: {', '.join(renamed)}")
    if title != Path(file).stem:
        report.notes.append(f"{file}: its table is called {title}")
    named = dict(zip(names, columns, strict=True))
    report.notes += (f"{title}.{name} {one.note}" for name, one in named.items() if one.note)
    types = {name: column.kind for name, column in named.items()}
    table = quote_identifier(title)
    declared = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in types.items())
    connection.execute(f"CREATE TABLE {table} ({declared})")
    duck.execute(f"SELECT {', '.join(column.values for column in columns)} FROM t ORDER BY rowid")
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
    reads = [(at, column.read) for at, column in enumerate(columns) if column.read]
    total = 0
    while rows := duck.fetchmany(FETCHED_ROWS):
        cells = list(map(list, rows))
        for at, read in reads:
            for row in cells:
                row[at] = None if row[at] is None else read(row[at])
        connection.executemany(insert, cells)
        total += len(cells)
    report.tables.append(ConvertedTable(title, total, types))


def table_name(stem: str) -> str:
    return _plain(stem) or "table_1"


def _plain(text: str) -> str:
    """Return a name that SQL reads without quotes: `Rent_EUR` for "Rent (EUR)"."""
    name = "_".join(re.findall(r"\w+", unicodedata.normalize("NFKC", plain(text))))
    if name[:1].isdigit():
        return f"_{name}"
    return f"{name}_" if RESERVED.fullmatch(name) else name


def plain_names(header: Sequence[str]) -> list[str]:
    """Return distinct plain names: an empty one is numbered, and so is one that came before."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    plain_first = sorted(
        enumerate(header, 1), key=lambda one: not one[1].strip() or _plain(one[1]) != one[1].strip()
    )
    for index, text in plain_first:
        found[index] = free_name(_plain(text) or f"column_{index}", taken)
    return [found[index] for index in sorted(found)]


def free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not `taken`, in any letter case: with a number if it must have one."""
    numbered = (f"{name}_{number}" for number in count(2))
    free = next(one for one in chain([name], numbered) if one.lower() not in taken)
    taken.add(free.lower())
    return free


@contextmanager
def _mapped_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (csv.Error, apsw.Error, duckdb.Error) as error:
        if isinstance(error, duckdb.OutOfMemoryException) or "failed to pin block" in str(error):
            remedy = "split it into smaller files, or leave out its longest cells"
            raise DataError(
                f"{path} takes over {duck_tables.MEMORY} of memory to read: {remedy}"
            ) from error
        raise DataError(f"{path}: {' '.join(str(error).split())[:300]}") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
