"""Find the table in the records of a file or a sheet: its header, and what is not of its rows."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

from data.cell_formats import is_missing, plain, readings
from data.sources.delimited_text import Record
from shared.console import counted
from shared.errors import DataError

SAMPLE = 200  # records that are looked at for the header
MAX_NAMED = 10  # lines that a note names
MAX_LOST = 0.03  # of a file's rows, without a person's leave
YEARS = range(1900, 2101)
ROW_NAMES = "row_name"  # of a column that R's write.table writes without a name
_FOOTNOTE = re.compile(r"[*†‡(]|[^\W\d]+ ?:|.* .*[.:)]$")
_UNIT = re.compile(r"[(\[][^)\]]*[)\]]|[^\d\s]{1,6}")


@dataclass
class Table:
    """A table inside a file: the names of its columns, "" without one, and its rows of that width.

    notes, lost   what is said of rows that are read, and of those that are not; complete after the
                  last row
    """

    name: str  # of the file or the sheet, for notes
    header: list[str]
    rows: Iterator[Record]
    unit: str = "line"
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    read_rows: int = 0
    lost_rows: int = 0

    def note(self, what: str, lines: Sequence[int], effect: str, *, lost: bool = False) -> None:
        """Say something of rows, by their lines, if there are any."""
        if lines:
            first = ", ".join(map(str, lines[:MAX_NAMED]))
            others = f" and {len(lines) - MAX_NAMED:,} more" if len(lines) > MAX_NAMED else ""
            where = f"{self.unit}{'s' * (len(lines) > 1)} {first}{others}"
            text = f"{self.name}: {counted(len(lines), 'row')} {what} ({where}), {effect}"
            (self.lost if lost else self.notes).append(text)
            self.lost_rows += len(lines) * lost


def find_table(name: str, records: Iterator[Record], unit: str = "line") -> Table | None:
    """Return the table of these records; None if they hold no cell."""
    sample = list(islice(records, SAMPLE))
    filled = [one for one in sample if any(map(plain, one.cells))]
    if not filled:
        return None
    table = Table(name, [], iter(()), unit)
    at = _header_at(filled)
    above = filled[:at]
    if above:
        text = " / ".join(" ".join(filter(None, map(plain, one.cells))) for one in above)
        table.notes.append(f"{name}: left out above the header: {text[:200]!r}")
    header = [" ".join(plain(cell).split()) for cell in filled[at].cells]
    body = filled[at + 1 :]
    cells = (cell for one in filled[at:] for cell in enumerate(one.cells[: len(header)], 1))
    header = header[
        : max(number for number, cell in cells if plain(cell))
    ]  # a delimiter ends lines
    first = filled[at].line + 1
    if _is_second_header(header, body):
        over = ""
        for place, name_below in enumerate(map(plain, body[0].cells[: len(header)])):
            over = header[place] or over
            header[place] = " ".join(filter(None, (over, " ".join(name_below.split()))))
        table.notes.append(f"{name}: the header is {unit}s {filled[at].line} and {body[0].line}")
        first, body = body[0].line + 1, body[1:]
    if _lacks_row_names(header, body):
        header.insert(0, ROW_NAMES)
        table.notes.append(f"{name}: its first column, of R's row names, is called {ROW_NAMES}")
    if _is_data(header, body):
        table.notes.append(f"{name}: {unit} {filled[at].line} is a row: the columns have no names")
        header, first = [""] * max(len(header), *(len(one.cells) for one in body)), filled[at].line
    elif body and _are_units(header, body):
        table.note(
            "of units", [body[0].line], f"left out: {', '.join(filter(None, body[0].cells))}"
        )
        first = body[0].line + 1
    table.header = header
    rest = chain(sample, records)
    table.rows = _rows(table, (record for record in rest if record.line >= first))
    return table


def _header_at(filled: Sequence[Record]) -> int:
    """Return where the header is: below titles, comments and lines of keys with a value."""
    cells = [sum(map(bool, map(plain, one.cells))) for one in filled]
    wide = Counter(len(one.cells) for one in filled).most_common(1)[0][0]
    if cells[0] == 1 == len(filled[0].cells) and _lacks_row_names(filled[0].cells, filled[1:]):
        return 0
    if max(cells) < 2:
        return next((at for at, one in enumerate(filled) if not one.cells[0].startswith("#")), 0)
    at = next(
        at
        for at, number in enumerate(cells)
        if number > 1 or (wide == 2 and not plain(filled[at].cells[0]))  # an index without a name
    )
    for later in range(at + 1, len(filled)):
        gap = filled[later].line > filled[later - 1].line + 1 or cells[later - 1] == 1
        if len(filled[at].cells) < wide and gap and cells[later] > 1:
            return later  # lines of keys with a value, and a blank line, are above it
        if (
            cells[later] > 1
            and filled[at].cells[0].startswith("# ")
            and not _is_data(filled[later].cells, filled[later + 1 :])
        ):
            return later
        if len(filled[later].cells) >= wide:
            break
    return at


def _lacks_row_names(header: Sequence[str], body: Sequence[Record]) -> bool:
    """Return whether each row has one cell more than the header has names, as R writes tables."""
    width = len(header) + 1
    return (
        all(header)
        and all(len(one.cells) == width and plain(one.cells[0]) for one in body)
        and any(plain(one.cells[-1]) for one in body)
        and (len(header) > 1 or _is_data(body[0].cells, body[1:]))
    )


def _known(body: Sequence[Record], at: int) -> list[str]:
    """Return the cells of a column that hold a value."""
    return [one.cells[at] for one in body if at < len(one.cells) and not is_missing(one.cells[at])]


def _kinds(cell: str) -> dict[str, str]:
    """Return what a cell may be, a number, date or time, each with the number's unit or ""."""
    found = (one for one in readings(cell) if one[0] != "boolean")
    return {one[0]: one[2] if one[0] == "number" else "" for one in found}


def _is_data(header: Sequence[str], body: Sequence[Record]) -> bool:
    """Return whether what should be the header is a row: it has numbers or dates as those below.

    A number with a unit, such as '2020 Census', is a name unless a cell below has the unit too.
    """
    read = {
        (at, kind): units
        for at, cell in enumerate(header)
        for kind, unit in _kinds(cell).items()
        if unit in ("", *(units := [_kinds(one).get(kind) for one in _known(body, at)]))
    }
    years = [int(header[at]) for at, _ in read if header[at].isdecimal()]
    counting = len(years) > 1 and all(after - before == 1 for before, after in pairwise(years))
    if not read or (len(years) == len(read) and (counting or all(year in YEARS for year in years))):
        return False
    return any(units and None not in units for units in read.values())


def _is_second_header(header: Sequence[str], body: Sequence[Record]) -> bool:
    """Return whether the first row below the header holds names: words alone, also below cells that
    are empty because the one to their left spans them, and values follow."""
    if len(body) < 3 or not any(header[1:]):
        return False
    names = [plain(cell) for cell in body[0].cells[: len(header)]]
    below = [at for at, cell in enumerate(names) if cell and any(header[: at + 1])]
    if all(header[at] for at in below) or any(readings(cell) for cell in names if cell):
        return False
    return all(
        (known := _known(body[1:], at)) and all(_kinds(cell) for cell in known) for at in below
    )


def _are_units(header: Sequence[str], body: Sequence[Record]) -> bool:
    """Return whether the first row below the header holds units: they are where numbers follow."""
    units = [plain(cell) for cell in body[0].cells]
    given = [cell for cell in units if not is_missing(cell)]
    if len(body) < 2 or not given or not all(map(_UNIT.fullmatch, given)):
        return False
    for at, unit in enumerate(units):
        column = _known(body[1:], at)
        numbers = bool(column) and all(_kinds(cell) for cell in column)
        if not is_missing(unit) and unit[0] not in "([" and not numbers:
            return False
    return True


def _rows(table: Table, records: Iterator[Record]) -> Iterator[Record]:
    """Yield the rows, as wide as the header; say which were changed or left out."""
    width = len(table.header)
    lines: dict[str, list[int]] = defaultdict(list)  # by what is said of them
    held: list[Record] = []  # with one cell only: perhaps they are below the table
    blank = False
    for line, cells, is_odd in records:
        texts = list(map(plain, cells))
        if not any(texts):
            blank = True
            continue
        if is_odd:
            lines["odd"].append(line)
        if texts[0].startswith("#") and len(cells) != width and width > 1:
            lines["comment"].append(line)
            continue
        if any(table.header) and [" ".join(text.split()) for text in texts[:width]] == table.header:
            lines["again"].append(line)
            continue
        if (
            width > 1
            and texts[0]
            and not any(texts[1:])
            and not readings(texts[0])
            and (len(cells) == 1 or blank or _FOOTNOTE.match(texts[0]))
        ):
            held.append(Record(line, texts, is_odd))
            continue
        for record in held:
            lines["short"].append(record.line)
            table.read_rows += 1
            yield Record(record.line, [record.cells[0], *[""] * (width - 1)])
        held, blank = [], False
        if any(texts[width:]):
            lines["long"].append(line)
            continue
        if len(cells) < width:
            lines["short"].append(line)
        table.read_rows += 1
        yield Record(line, [*texts[:width], *[""] * (width - len(texts))])
    table.note(f"of fewer cells than the header's {width}", lines["short"], "the others are NULL")
    odd = "with a cell that starts with a quote and doesn't end with one"
    table.note(odd, lines["odd"], "the quote is text")
    table.note("like the header", lines["again"], "left out")
    table.note("of comments", lines["comment"], "left out")
    below = " / ".join(record.cells[0] for record in held)
    table.note("below the table", [record.line for record in held], f"left out: {below[:200]!r}")
    effect = "left out: quote cells that contain the delimiter"
    table.note(f"of more cells than the header's {width}", lines["long"], effect, lost=True)


def check_lost(table: Table, skip_bad_rows: bool) -> None:
    """Raise `DataError` if a table lost more of its rows than a person may overlook."""
    total = table.lost_rows + table.read_rows
    if table.lost_rows > MAX_LOST * total and not skip_bad_rows:
        remedy = "correct them, or pass --skip-bad-rows"
        raise DataError(
            f"{'; '.join(table.lost)}; {table.lost_rows:,} of {total:,} are too many: {remedy}"
        )
