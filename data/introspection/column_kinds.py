"""A SQLite database as a `Domain`: what each of its columns is for.

Kinds follow from the keys and from the cells, since SQLite's declared types promise nothing. A
column that no question can use well is left out, with a reason: ids, BLOBs, columns with one value,
with values of several types or with long texts, passwords, and dates in other forms than ISO's.

Names of tables and columns in the domain are SQL identifiers, in quotes where SQL needs them.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import apsw

from data.cell_formats import column_of
from data.domains.question_forms.asker import NUMBERS
from data.domains.spec import Column, Domain, Kind, Rows, Table, Value
from data.introspection.names import LISTS, awkward, core_of, phrase_of, singular, without_prefix
from data.introspection.tables import Cells, RawTable, is_blank, read_tables

LABELS = (Kind.TEXT, Kind.CATEGORY)
OTHER_DATES = (
    "dates that are not all in ISO's form or NULL ('import sqlite FILE --mend' rewrites them)"
)
MAX_CATEGORIES = 40
MAX_TEXT_CHARS = 60  # mean of a column; longer texts are poor answers
MAX_LABEL_CHARS = 40  # of any value of a category
TEXT_FLAGS = ({"y", "n"}, {"yes", "no"}, {"t", "f"}, {"true", "false"})
YEARS = range(1500, 2101)
NAME_SHARE, FULL_NAME_SHARE = 0.9, 0.5  # least share of different values in a column of names
NAME_NULLS = 0.1  # largest share of rows without a name
_DATE = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?"
)
_DATE_IN_DIGITS = re.compile(r"(?:1[5-9]|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:\.0)?")
_NUMBER = re.compile(r"[-+]?[\d.,]+")


@dataclass(frozen=True)
class Schema:
    """What questions may use of a database.

    partial   tables -> what their NAME column is called, where it is not simply the name
    left_out  reasons -> the columns (`table.column`) and tables that are not used for them
    """

    domain: Domain
    rows: Rows
    partial: dict[str, str]
    left_out: dict[str, list[str]]


class _Unusable(Exception):
    """The reason why no question can use a column."""


@dataclass(frozen=True)
class _Use:
    """A raw column and a use of it. One column may have two: as a reference and as a category."""

    cells: Cells
    column: Column


def introspect(db_id: str, connection: apsw.Connection, rng: random.Random) -> Schema:
    """Return what questions may use of a database. Raises apsw's errors."""
    raw, small = read_tables(connection, rng)
    nouns = {table.singular for table in raw}
    tables: list[Table] = []
    rows: Rows = {}
    partial: dict[str, str] = {}
    left_out: dict[str, list[str]] = defaultdict(list)
    left_out["tables of fewer than two rows"] += small
    for table in raw:
        uses = [*_keys(table), *_attributes(table, nouns, left_out)]
        ranked = [(rank, use) for use in uses if (rank := _name_rank(table, use)) is not None]
        if ranked:  # NAME is the column that best identifies a row to people
            rank, best = min(ranked, key=lambda one: one[0])
            if rank:
                partial[table.sql] = best.column.wordings[0]
            named = replace(best.column, kind=Kind.NAME)
            uses = [_Use(use.cells, named) if use is best else use for use in uses]
        columns = tuple(use.column for use in uses)
        tables.append(Table(table.sql, table.singular, table.plural, columns, table.count))
        rows[table.sql] = _rows(table, uses, connection)
    # alone, counts of rows are too few questions
    usable = any(table.of_kind(*set(Kind) - {Kind.KEY, Kind.REF}) for table in tables)
    return Schema(Domain(db_id, tuple(tables) if usable else ()), rows, partial, left_out)


def _keys(table: RawTable) -> list[_Use]:
    uses = []
    for cells in table.columns:
        if cells is table.key:
            uses.append(_Use(cells, Column(cells.sql, Kind.KEY)))
        if parent := table.refs.get(cells):
            role = _role(cells, parent)
            uses.append(_Use(cells, Column(cells.sql, Kind.REF, None, role, references=parent.sql)))
    return uses


def _role(cells: Cells, parent: RawTable) -> tuple[str, ...]:
    """Return what a reference calls the row that it leads to: `manager`; () for the row's noun."""
    words = list(cells.words)
    if parent.key and cells.name.lower() == parent.key.name.lower():
        return ()
    if len(words) > 1 and words[-1] in LISTS["codes"] | LISTS["ids"]:
        words = words[:-1]
    noun = parent.singular.split()
    whole = [singular(word) for word in words]
    if whole == noun or whole in (noun[:1], noun[-1:]) or awkward(words):
        return ()
    return (" ".join(words),)


def _attributes(table: RawTable, nouns: set[str], left_out: Mapping[str, list[str]]) -> list[_Use]:
    noun = core_of(table.words)
    short = [without_prefix(cells.words, noun) for cells in table.columns]
    taken: set[str] = set()
    uses = []
    for cells, words in zip(table.columns, short, strict=True):
        link = cells in table.refs or cells in table.foreign or cells is table.key
        try:
            kind = _kind(table, cells)
            if link and (kind not in LABELS or _is_numeric(cells)):
                raise _Unusable("keys")
            if kind in LABELS:
                texts = Counter(str(cell) for cell in cells.sample if cell is not None)
                spelling = column_of(texts.items).spelling
                if spelling is not None and spelling[0] == "date":  # that `--mend` would rewrite
                    raise _Unusable(OTHER_DATES)
            if kind in NUMBERS and " ".join(map(singular, cells.words)) in nouns:
                raise _Unusable("ids of the rows of another table")
            # `date` alone could also mean another column's `return date`
            alone = sum(other[-len(words) :] == words for other in short) == 1
            phrase = phrase_of(words if alone else cells.words, kind)
            if phrase is None:
                raise _Unusable("names that make no noun")
            if phrase in taken:
                raise _Unusable("names that read as another column's")
        except _Unusable as reason:
            if cells is not table.key and cells not in table.refs:
                left_out[str(reason)].append(f"{table.sql}.{cells.sql}")
            continue
        taken.add(phrase)
        uses.append(_Use(cells, Column(cells.sql, kind, None, (phrase,))))
    return uses


def _kind(table: RawTable, cells: Cells) -> Kind:
    """Return what a column is for. Raises `_Unusable`."""
    counts, known, last = cells.counts, cells.known, cells.words[-1]
    texts, numbers = counts["text"], counts["integer"] + counts["real"]
    in_key = numbers and cells in table.keys and "year" not in cells.words
    years = all(cell in YEARS for cell in known) and LISTS["ordinals"].isdisjoint(cells.words)
    ends_in_id = len(last) > 4 and last.endswith("id") and last not in LISTS["not_ids"]
    two = set(known) if len(set(known)) == 2 else set()
    says_flag = cells.words[0] in LISTS["flag_starts"] or last in LISTS["flag_ends"]
    says_flag = says_flag or cells.declared.upper() in ("BOOL", "BOOLEAN", "BIT")
    says_flag = says_flag or {str(cell).lower() for cell in two} in TEXT_FLAGS

    def is_epoch(cell: Value) -> bool:  # in seconds or milliseconds, of 1999 or later
        seconds = range(915_148_800, 2**32)
        return isinstance(cell, int) and (cell in seconds or cell // 1000 in seconds)

    reasons: dict[str, object] = {
        "BLOBs": counts["blob"],
        "texts that are not UTF-8": texts and not cells.sample,
        "texts and numbers in one column": texts and numbers,
        "no two different values": len(set(known)) < 2,
        "flags": two and (two <= {0, 1} or says_flag),
        "secrets": LISTS["secrets"].intersection(cells.words),
        "names without a letter": not any(map(str.isalpha, cells.name)),
        "ids": last in LISTS["ids"] or in_key,
        "numbers of people or rows": numbers and (last in LISTS["roles"] or ends_in_id),
        "seconds since 1970": numbers and all(map(is_epoch, known)),
        "dates in digits, such as 20241231": all(_DATE_IN_DIGITS.fullmatch(str(c)) for c in known),
        "years under another name": numbers and years,
    }
    if reason := next((one for one, holds in reasons.items() if holds), None):
        raise _Unusable(reason)
    if not numbers:
        return _text_kind(cells)
    unfit = LISTS["ordinals"] | LISTS["aggregates"]  # not 'the highest average'
    codes = LISTS["codes"] | LISTS["coded"]
    code = last in codes and cells.words[:-1][:1] not in (["number"], ["total"])
    if code or not unfit.isdisjoint(cells.words):
        return Kind.TEXT
    return Kind.REAL if cells.counts["real"] else Kind.INTEGER


def _text_kind(cells: Cells) -> Kind:
    known = [str(cell) for cell in cells.known]
    lengths = [len(text) for text in known]
    blank = len(known) < sum(cell is not None for cell in cells.sample)
    if not blank and len(set(lengths)) == 1 and all(map(_DATE.fullmatch, known)):
        return Kind.DATE
    if sum(lengths) > MAX_TEXT_CHARS * len(known):
        raise _Unusable("long texts")
    few = len(set(known)) <= min(MAX_CATEGORIES, len(known) // 2)
    if few and not blank and max(lengths) <= MAX_LABEL_CHARS:
        return Kind.CATEGORY
    return Kind.TEXT


def _is_numeric(cells: Cells) -> bool:
    return all(_NUMBER.fullmatch(str(cell)) for cell in cells.known)


def _name_rank(table: RawTable, use: _Use) -> int | None:
    """Return 0 for a full name, more for poorer ones, None for what is no name."""
    if use.column.kind not in LABELS or not use.cells.counts["text"]:
        return None
    known = use.cells.known
    phrase = use.column.wordings[0]
    words = phrase.split()
    if (LISTS["not_names"] | LISTS["dates"]).intersection(words) or _is_numeric(use.cells):
        return None
    if any(_DATE.match(str(cell)) for cell in known):  # with a time zone it is text
        return None
    full = (
        phrase in LISTS["full_names"]
        or [singular(word) for word in words] == table.singular.split()
    )
    share = len(set(known)) / len(known)
    if share < (FULL_NAME_SHARE if full else NAME_SHARE):
        return None
    if len(known) < (1 - NAME_NULLS) * len(use.cells.sample):
        return None
    if full:
        return 0
    if words[-1] in ("name", "title"):
        return 2 if words[0] == "last" else 1
    return 3 if words[-1] in LISTS["codes"] else 4


def _rows(
    table: RawTable, uses: Sequence[_Use], connection: apsw.Connection
) -> list[tuple[Value, ...]]:
    """Return a table's sampled rows, of which templates choose, with what must not be missed.

    A sample could lack the only NULL of a column, or the second row of a name: then rows are added
    that have them.
    """
    if not uses:
        return []
    columns = [_choosable(use, table) for use in uses]
    rows: list[tuple[Value, ...]] = list(zip(*columns, strict=True))
    if len(rows) == table.count:
        return rows
    for at, use in enumerate(uses):
        if use.cells.counts["null"] and None not in columns[at]:
            rows.append((*rows[0][:at], None, *rows[0][at + 1 :]))
        if use.column.kind is Kind.NAME:
            names = sorted({str(cell) for cell in columns[at] if cell is not None})
            where = f"{use.column.name} IN ({', '.join('?' * len(names))})"
            repeated = (
                f"SELECT {use.column.name} FROM {table.sql} WHERE {where} "
                f"GROUP BY {use.column.name} HAVING count(*) > 1"
            )
            try:
                twice = {name for (name,) in connection.execute(repeated, names)}
            except apsw.SQLError:  # its collation is not loaded: no gold compares it either
                continue
            rows += [row for row in rows if row[at] in twice]
    return rows


def _choosable(use: _Use, table: RawTable) -> list[Value]:
    """Return a column's sampled cells: blanks as NULL, references as the keys that they lead to."""
    cells = use.cells.sample
    if use.column.kind is not Kind.REF:
        return [None if is_blank(cell) else cell for cell in cells]
    key = table.refs[use.cells].key
    keys = {str(cell): cell for cell in key.sample} if key else {}
    return [keys.get(str(cell), cell) for cell in cells]
