"""The shipped databases, one TOML file each.

    title                    what the database is about
    [tables.NAME]            singular, plural, rows
    [tables.NAME.columns]    kind; maker (a function of values.py) and its arguments, or references
                             and null_share
    [tables.NAME.phrases]    what questions call a column; default: the column's name, and for a
                             reference the singular of its table
    [tables.NAME.given]      columns and rows that are written out; a column that the table lacks
                             becomes a lookup from the row's key
    [lookup.NAME]            a mapping that finish.py reads
    [words]                  word lists; "@NAME" means one of these or of lexicon.toml
    [composed.NAME]          a maker of this file: the arguments of values.composed
    [[hard]]                 text and gold SQL of a hand-written question

finish.py edits the populated rows so that cells agree with one another.
"""

import random
from dataclasses import dataclass
from typing import Any

from data.domains import values
from data.domains.populate import populate
from data.domains.shipped import finish
from data.domains.shipped.finish import Lookup, Sheet
from data.domains.spec import Column, Domain, HardQuestion, Kind, Maker, Rows, Table, Value
from data.domains.words import LISTS, listed, read_toml

# In this order the build distributes questions: earlier databases take frequent answers first.
SEEN = (
    "bakery", "clinic", "football_league", "library", "museum", "music_label", "university", "zoo",
)  # fmt: skip
UNSEEN = ("airline", "bike_rental", "real_estate", "film_festival", "vineyard")

File = dict[str, Any]  # the content of a database's file


@dataclass(frozen=True)
class Shipped:
    """A domain of the shipped set. No training question uses an `unseen` one."""

    domain: Domain
    unseen: bool
    lookup: Lookup

    def rows(self, seed: int) -> Rows:
        """Return the rows of every table, populated and edited."""
        db_id = self.domain.db_id
        rows = populate(self.domain, random.Random(f"rows:{seed}:{db_id}"))
        sheet: Sheet = {}
        for table in self.domain.tables:
            names = [column.name for column in table.columns]
            records = [dict(zip(names, row, strict=True)) for row in rows[table.name]]
            sheet[table.name] = dict(enumerate(records, start=1))  # keys count from 1
        getattr(finish, db_id)(sheet, self.lookup, random.Random(f"finish:{seed}:{db_id}"))
        return {
            name: [tuple(row.values()) for row in table.values()] for name, table in sheet.items()
        }


def load(db_id: str, *, unseen: bool) -> Shipped:
    """Read the file of one shipped database."""
    file = read_toml(f"shipped/{db_id}.toml")
    lookup: Lookup = file.get("lookup", {})
    for table in file["tables"].values():
        for name, cells in _given(table).items():
            if name not in table["columns"]:
                lookup[name] = dict(enumerate(cells, start=1))
    tables = tuple(_table(file, name) for name in file["tables"])
    hard = [HardQuestion(_one_line(one["text"]), _one_line(one["sql"])) for one in file["hard"]]
    return Shipped(Domain(db_id, file["title"], tables, tuple(hard)), unseen, lookup)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _given(table: File) -> dict[str, list[Value]]:
    """Return the cells that are written out, by column."""
    given = table.get("given", {"columns": [], "rows": []})
    return dict(zip(given["columns"], map(list, zip(*given["rows"], strict=True)), strict=True))


def _table(file: File, name: str) -> Table:
    table = file["tables"][name]
    phrases, given = table.get("phrases", {}), _given(table)
    columns = []
    for column, spec in table["columns"].items():
        target = spec.get("references")
        worded = phrases.get(column, [file["tables"][target]["singular"]] if target else [])
        maker = values.given(given[column]) if column in given else _maker(file, spec)
        null_share = spec.get("null_share", 0.0)
        kind = Kind(spec["kind"])
        columns.append(Column(column, kind, maker, tuple(worded), target, null_share))
    rows = table.get("rows") or len(table["given"]["rows"])
    return Table(name, table["singular"], table["plural"], tuple(columns), rows)


def _maker(file: File, spec: File) -> Maker | None:
    """Return the maker of a column's cells; None for keys and refs."""
    name = spec.get("maker")
    if name is None:
        return None
    if name not in file.get("composed", {}):
        arguments = {key: value for key, value in spec.items() if key not in ("kind", "maker")}
        maker: Maker = getattr(values, name)(**arguments)
        return maker
    lists = LISTS | {key: listed(text) for key, text in file.get("words", {}).items()}

    def words(text: str) -> tuple[str, ...]:
        """Return the words of a list, or of the lists that it names (`@heads @street_heads`)."""
        if not text.startswith("@"):
            return listed(text)
        return tuple(word for each in text.split() for word in lists[each.removeprefix("@")])

    composed: dict[str, Any] = {
        key: words(value) if isinstance(value, str) else value
        for key, value in file["composed"][name].items()
    }
    return values.composed(**composed)


SHIPPED = tuple(load(db_id, unseen=db_id in UNSEEN) for db_id in (*SEEN, *UNSEEN))
