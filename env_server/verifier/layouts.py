"""Read the text of an answer as the rows that it may stand for.

The server reads answers on its event loop, so each pattern takes linear time, whatever the text,
and a reading whose number of rows can't be right is given up before its cells are split. Every
reading is one whole answer: no part of the text is searched for or left out, except a header above
a Markdown rule, in a copied result, or in CSV with words above a column of numbers.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from shared.answers.cells import NULLS, Read, plain, unquote, visible
from shared.answers.text import (
    BAR,
    BULLET,
    RULE,
    cell_text,
    has_thousands,
    is_cell,
    lines_of,
    read_json,
    rows_of_object,
    split_bars,
    split_commas,
    unboxed,
    unwrapped_texts,
)
from shared.models import AnswerType

Rows = list[list[Read]]
IsResult = Callable[[str], bool]

_UNQUOTED = re.compile(r"\[[^\[\]'\"\n]++\]")
_BRACKETED = re.compile(r"[^()]++\([^()]++\)")
_HEADING = re.compile(r"(?=\W*+[^\W\d])\D*+")  # a word, and no digit
_NO_HEADINGS = NULLS | {"true", "false", "unknown", "nan", "n/a", "na", "inf", "infinity"}
_TUPLES = re.compile(r"\(([^()]*+)\)(?:\s*+[,;]?+\s*+(?=\()|\Z)")
_EMPTY = "(no rows)"  # what a QUERY without rows shows
_NO_ROWS = NULLS | {"no rows", _EMPTY}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a reading must look like to be compared: a scalar is one row of one cell."""

    kind: AnswerType
    min_rows: int
    max_rows: int
    widths: frozenset[int]  # cells that a row may have
    numeric: tuple[int, ...] = ()  # columns in which every gold cell is a number

    def fits(self, rows: int) -> bool:
        return self.min_rows <= rows <= self.max_rows

    def near(self, rows: int) -> bool:
        """Return whether the number of rows fits, perhaps below a header."""
        return self.fits(rows) or self.fits(rows - 1)

    def is_header(self, row: Sequence[Read]) -> bool:
        """Return whether a first row can only be a header: it has words where numbers belong."""
        if len(row) not in self.widths or not self.numeric:
            return False
        heads = [row[place] or "" for place in self.numeric]
        return all(_HEADING.fullmatch(one) and plain(one) not in _NO_HEADINGS for one in heads)

    def holds(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Return whether rows have the number and, as far as the first one shows, the width."""
        return self.fits(len(rows)) and (not rows or len(rows[0]) in self.widths)


def readings(text: str, shape: Shape, is_result: IsResult) -> Iterator[Rows]:
    """Yield each set of rows that `text` may stand for and that has the gold's shape.

    `is_result` tells whether a text is a result as the environment showed it in this episode. Such
    a text has one reading: what is below its header.
    """
    texts = unwrapped_texts(text)
    for inner in texts:
        for copy in (inner, _without_notes(inner)):
            if is_result(copy):
                yield from filter(shape.holds, (_copied(copy, shape),))
                return
    if (seen := visible(text)) != text:
        texts = unwrapped_texts(seen)
    read = {"list": _read_list, "table": _read_table}.get(shape.kind, _read_scalar)
    for inner in texts:
        for rows in read(inner, shape):
            if shape.holds(rows):
                yield rows
            csv_like = len(rows) > 1 and "|" not in inner and inner[0] not in "[{("
            if csv_like and shape.fits(len(rows) - 1) and shape.is_header(rows[0]):
                yield rows[1:]
        if shape.fits(0) and plain(unquote(inner.removesuffix("."))) in _NO_ROWS:
            yield []


# -- one reader per type


def _without_notes(text: str) -> str:
    """Return a text without the remarks that end it, as `env_server.render.render_remarks` wrote
    them."""
    lines = text.split("\n")
    while lines and lines[-1].startswith("(note: "):
        lines.pop()
    return "\n".join(lines)


def _copied(text: str, shape: Shape) -> Rows:
    """Read a result that `env_server.render.render_rows` wrote."""
    _, *lines = text.split("\n")
    if lines == [_EMPTY]:
        return []
    if shape.kind == "table":
        return [[*f"{line} ".split(" | ")] for line in lines]
    return [[line] for line in lines]


def _read_scalar(text: str, shape: Shape) -> Iterator[Rows]:
    yield [[text]]
    value = read_json(text)
    while (inner := unboxed(value)) is not value:
        value = inner
    if is_cell(value):
        yield [[cell_text(value)]]
    elif value == []:
        yield [[None]]
    if text.startswith("|") or "---" in text:
        column = _framed_column(lines_of(text))
        if column is not None:
            yield column


def _read_list(text: str, shape: Shape) -> Iterator[Rows]:
    value = read_json(text)
    if isinstance(value, dict):  # a named column
        value = unboxed(value)
    if isinstance(value, list):
        if shape.fits(len(value)) and all(map(is_cell, cells := list(map(unboxed, value)))):
            yield [[cell_text(cell)] for cell in cells]
        return
    lines = lines_of(text)
    if _UNQUOTED.fullmatch(text):
        text, lines = text[1:-1], [text[1:-1]]
    elif text.startswith("['") and text.endswith("']"):  # ['Al', 'O'Hara']
        yield [[part] for part in text[2:-2].split("', '")]
    if len(lines) < 2:
        for parts in _list_parts(text):
            yield [[part] for part in parts]
        return
    if shape.near(len(lines)):
        yield [[line] for line in lines]
        if all(map(BULLET.match, lines)):
            lines = [BULLET.sub("", line, count=1) for line in lines]
            yield [[line] for line in lines]
        yield [[line.removesuffix(",")] for line in lines]
    if shape.fits(len(lines) - 2) and RULE.fullmatch(lines[1]):
        yield [[line.strip("| \t")] for line in lines[2:]]
    if (column := _framed_column(lines)) is not None:
        yield column
    if "\n\n" in text and shape.fits(text.count("\n") + 1):  # an empty line is an empty text
        yield [[line.strip()] for line in text.split("\n")]
    if '"' in text:
        yield _csv(text)


def _read_table(text: str, shape: Shape) -> Iterator[Rows]:
    value = read_json(text)
    if isinstance(value, dict):
        if shape.fits(len(value)) and all(map(is_cell, value.values())):
            yield [[name, cell_text(cell)] for name, cell in value.items()]
        value = rows_of_object(value)
    if isinstance(value, list):
        if not shape.near(len(value)) and not all(map(is_cell, value)):
            return
        rows = [list(row.values()) if isinstance(row, dict) else row for row in value]
        if all(isinstance(row, list) and all(map(is_cell, row)) for row in rows):
            yield [[cell_text(cell) for cell in row] for row in rows]
        elif all(map(is_cell, value)):  # one row
            yield [[cell_text(cell) for cell in value]]
        return
    lines = lines_of(text)
    if len(lines) > 2 and RULE.fullmatch(lines[1]):
        lines = lines[2:]  # Markdown: a header and its rule
    if len(lines) == 1 or text.startswith("("):
        yield from _one_line_tables(", ".join(line.rstrip(",") for line in lines), shape)
    if (
        shape.fits(1)
        and len(lines) in shape.widths
        and all(line.count(": ") == 1 for line in lines)
    ):
        yield [[line.split(": ")[1] for line in lines]]
    if shape.near(len(lines)):
        yield from _line_tables(lines, shape)
        if all(map(BULLET.match, lines)):
            yield from _line_tables([BULLET.sub("", line, count=1) for line in lines], shape)
        tabbed = [line for line in text.split("\n") if line.strip()]
        if all("\t" in line for line in tabbed):
            yield [[*line.split("\t")] for line in tabbed]
    if '"' in text:
        yield _csv(text)


def _one_line_tables(line: str, shape: Shape) -> Iterator[Rows]:
    """Yield the tables whose rows are one after another: (Rome, 2), (Oslo, 3); Rome: 2, Oslo: 3;
    Rome | 2, Oslo | 3; Rome (2), Oslo (3); Rome, 2; Oslo, 3."""
    if line.startswith("("):
        cells = _TUPLES.findall(line)
        if shape.fits(len(cells)) and not _TUPLES.sub("", line):
            yield from _line_tables(cells, shape)
    if shape.fits(len(rows := line.split("; "))) and len(rows) > 1:
        yield from _line_tables(rows, shape)
    if 2 in shape.widths:
        for separator in ("; ", ", "):
            pairs = line.split(separator)
            for joint in (": ", " | "):
                if shape.fits(len(pairs)) and all(pair.count(joint) == 1 for pair in pairs):
                    yield [[*pair.split(joint)] for pair in pairs]
            if shape.fits(len(pairs)) and all(map(_BRACKETED.fullmatch, pairs)):
                yield [[*pair[:-1].split("(")] for pair in pairs]


def _line_tables(lines: list[str], shape: Shape) -> Iterator[Rows]:
    """Yield the tables that have one row per line."""
    if all("|" in line for line in lines):
        bars = (None, BAR) if any("\\|" in line for line in lines) else (None,)
        for bar in bars:  # without Markdown's own bar within a cell, then with it
            if len(split_bars(lines[0], bar)) in shape.widths:
                yield [split_bars(line, bar) for line in lines]
        return
    spaced = [line.split(", ") for line in lines]
    thousands, alone = any(map(has_thousands, spaced)), max(map(len, spaced)) == 1
    if alone or not thousands:  # as in `_list_parts`
        yield [list(split_commas(line)) for line in lines]
    if not (alone and thousands):
        yield [list(parts) for parts in spaced]
    if 2 in shape.widths and all(line.count(": ") == 1 for line in lines):
        yield [[*line.split(": ")] for line in lines]
    if 2 in shape.widths and all(map(_BRACKETED.fullmatch, lines)):
        yield [[*line[:-1].split("(")] for line in lines]


def _list_parts(line: str) -> Iterator[Sequence[str]]:
    """Yield the ways to read a line as a list.

    1,234 is two items and '1,234, 5' two: where a comma and a space separate, a comma alone does
    not, if a number has one.
    """
    spaced = line.split(", ")
    thousands = has_thousands(spaced)
    if len(spaced) > 1 or not thousands:
        yield spaced
    if len(spaced) == 1 or not thousands:
        yield split_commas(line)
    if ";" in line:
        yield [part.strip() for part in line.split(";")]
    head, joint, last = line.rpartition(" and ")
    if joint and (", " in head or " and " not in head):
        yield [*head.removesuffix(",").split(", "), last]


def _framed_column(lines: list[str]) -> Rows | None:
    """Return the cells of Markdown rows `| cell |` without the header; None for other lines."""
    if len(lines) > 2 and RULE.fullmatch(lines[1]):
        lines = lines[2:]
    if not all(len(line) > 1 and line.startswith("|") and line.endswith("|") for line in lines):
        return None
    rows = [split_bars(line, BAR) for line in lines]
    return rows if all(len(row) == 1 for row in rows) else None


def _csv(text: str) -> Rows:
    """Read CSV whose quoted cells may contain line ends."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
        return [[part.strip() for part in row] for row in rows if row]
    except csv.Error:
        return []
