"""Open the files of people: compressed ones, workbooks with sheets, and text, as tables of text."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple
from zlib import error as ZlibError

import python_calamine as calamine

from data.sources.delimited_text import Record, as_utf8, text_records
from data.sources.layout import Table, find_table
from shared.errors import DataError

TEXTS = (".csv", ".tsv", ".txt", ".tab", ".psv", ".dat")
SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
PACKED = (*OPENERS, ".zip")
DAMAGES = (
    *(OSError, EOFError, RuntimeError, NotImplementedError),
    *(ZlibError, lzma.LZMAError, zipfile.BadZipFile),
)
CHUNK_BYTES = 1 << 20
MAX_UNPACKED_BYTES = 1 << 33
MAX_SHEET_BYTES = 1 << 28  # of a workbook's parts unpacked, which are in memory together


class NotRead(DataError):
    """A file that is not what its name says: it holds no table."""


class Found(NamedTuple):
    """A file with data: where it is, its own name, and where people see it."""

    path: Path
    name: str
    shown: str

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix.lower()

    @property
    def stem(self) -> str:
        return Path(self.name).stem


def unpacked(path: Path, scratch: Path) -> Iterator[Found]:
    """Yield the file itself, or what it is compressed from, or the files of an archive. Raises
    `NotRead` if it is damaged, `DataError` if it is too large."""
    found, size = Found(path, path.name, str(path)), 0
    if not _is_packed(found):
        yield found
        return
    try:
        for number, (source, name, shown) in enumerate(_parts(found)):
            target = scratch / f"unpacked-{number}"
            with source, target.open("wb") as copy:
                while some := source.read(CHUNK_BYTES):
                    size += len(some)
                    if size > MAX_UNPACKED_BYTES:
                        most = f"{MAX_UNPACKED_BYTES:,} bytes unpacked"
                        raise DataError(f"{shown} is over {most}: split it")
                    copy.write(some)
            yield Found(target, name, shown)
    except DAMAGES as error:
        raise NotRead(f"{path} is not read: it can't be unpacked ({error})") from error


def _is_packed(found: Found) -> bool:
    """Return whether a file is to be unpacked first; a pipe too, since it can be read once."""
    if found.suffix != ".xlsx" or not zipfile.is_zipfile(found.path):
        return found.suffix in PACKED or found.path.is_fifo()
    with zipfile.ZipFile(found.path) as archive:
        return "[Content_Types].xml" not in archive.namelist()  # no workbook


def _parts(found: Found) -> Iterator[tuple[IO[bytes], str, str]]:
    """Yield the files inside a file, each with its own name and the one that people see."""
    if found.suffix in OPENERS:
        yield OPENERS[found.suffix](found.path), found.stem, found.shown
    elif found.path.is_fifo():
        yield found.path.open("rb"), found.name, found.shown
    else:
        with zipfile.ZipFile(found.path) as archive:
            for member in archive.infolist():
                if not (member.is_dir() or "__MACOSX" in member.filename):
                    name = Path(member.filename).name
                    yield archive.open(member), name, f"{found.shown}, {name}"


def tables_in(found: Found, scratch: Path) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a text file or a workbook, with the sheet's name if there are several."""
    if found.suffix in SHEETS:
        yield from _sheets(found)
        return
    utf8 = scratch / "utf8"
    notes = as_utf8(found.path, utf8, found.shown)
    if table := find_table(found.name, text_records(utf8, found.suffix)):
        table.notes[:0] = notes
        yield "", table


def _sheets(found: Found) -> Iterator[tuple[str, Table]]:
    if zipfile.is_zipfile(found.path):
        with zipfile.ZipFile(found.path) as archive:
            size = sum(part.file_size for part in archive.infolist())
    else:
        size = found.path.stat().st_size
    if size > MAX_SHEET_BYTES:
        raise DataError(f"{found.shown} is {size:,} bytes unpacked: save its sheets as CSV")
    try:
        workbook = calamine.CalamineWorkbook.from_path(str(found.path))
        sheets = [workbook.get_sheet_by_name(name) for name in workbook.sheet_names]
    except calamine.PasswordError as error:
        raise DataError(f"{found.shown} has a password: save it without") from error
    except (calamine.CalamineError, OSError) as error:
        raise NotRead(f"{found.shown} is not read: it is no workbook ({error})") from error
    filled = [sheet for sheet in sheets if sheet.height]
    for sheet in filled:
        name = f"{found.name}, {sheet.name}" if len(filled) > 1 else found.name
        rows, spread = _unmerged(sheet)
        first = (sheet.start or (0, 0))[0] + 1
        if table := find_table(name, _sheet_records(rows, first), "row"):
            if spread:
                shown = ", ".join(spread[:3]) + ", ..." * (len(spread) > 3)
                table.notes.append(f"{name}: each row of a merged cell gets its text: {shown}")
            yield sheet.name if len(filled) > 1 else "", table


def _unmerged(sheet: Any) -> tuple[list[list[Any]], list[str]]:
    """Return the rows of a sheet, and the texts of cells that are merged over several rows below
    the header: each of these rows gets the text, if it has other cells."""
    rows = sheet.to_python(skip_empty_area=True)
    y, x = sheet.start or (0, 0)
    header = next((at for at, row in enumerate(rows) if sum(map(_filled, row)) > 1), len(rows))
    spread = []
    for (top, left), (bottom, right) in getattr(sheet, "merged_cell_ranges", None) or ():
        first, at = top - y, left - x
        if right > left or not header < first < len(rows) or not 0 <= at < len(rows[0]):
            continue
        below = [row for row in rows[first + 1 : bottom - y + 1] if any(map(_filled, row))]
        if below and isinstance(text := rows[first][at], str) and text:
            for row in below:
                row[at] = text
            spread.append(text)
    return rows, spread


def _filled(cell: Any) -> bool:
    return cell is not None and cell != ""


def _sheet_records(rows: list[list[Any]], first: int) -> Iterator[Record]:
    timed = {at for row in rows for at, cell in enumerate(row) if isinstance(cell, datetime)}
    for number, row in enumerate(rows, first):
        yield Record(number, [_cell_text(cell, at in timed) for at, cell in enumerate(row)])


def _cell_text(cell: Any, timed: bool) -> str:
    """Return a cell of a sheet as a person would write it in CSV."""
    match cell:
        case bool():
            return str(cell).upper()
        case float() if cell.is_integer() and abs(cell) < 2**63:
            return str(int(cell))
        case datetime():
            return cell.isoformat(" ")
        case date():
            return f"{cell} 00:00:00" if timed else str(cell)
        case time():
            return _clock(datetime.combine(date.min, cell) - datetime.min)
        case timedelta():
            return _clock(cell)
    return str(cell).replace("\r\n", "\n")


def _clock(span: timedelta) -> str:
    """Return a time as hours, minutes and seconds, with milliseconds if it has any."""
    seconds, thousandths = divmod(round(span.total_seconds() * 1000), 1000)
    fraction = f".{thousandths:03}" if thousandths else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
