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

from pydantic import BaseModel, ConfigDict

from data.domains import values
from data.domains.populate import populate
from data.domains.shipped import finish
from data.domains.shipped.finish import Lookup, Sheet
from data.domains.spec import Column, Domain, HardQuestion, Kind, Maker, Rows, Table, Value
from data.domains.words import LISTS, WordList, listed, read_toml

# In this order the build distributes questions: earlier databases take frequent answers first.
SEEN = (
    "bakery", "clinic", "football_league", "library", "museum", "music_label", "university", "zoo",
)  # fmt: skip
UNSEEN = ("airline", "bike_rental", "real_estate", "film_festival", "vineyard")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Column(BaseModel):
    """Extra fields are the maker's arguments."""

    model_config = ConfigDict(extra="allow")
    kind: Kind
    maker: str | None = None
    references: str | None = None
    null_share: float = 0.0


class _Given(_Model):
    columns: list[str]
    rows: list[list[int | float | str]]

    def column(self, name: str) -> list[Value]:
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


class _Table(_Model):
    singular: str
    plural: str
    rows: int | None = None
    columns: dict[str, _Column]
    phrases: dict[str, tuple[str, ...]] = {}
    given: _Given = _Given(columns=[], rows=[])


class _File(_Model):
    title: str
    tables: dict[str, _Table]
    lookup: dict[str, dict[str, Any]] = {}
    words: dict[str, WordList] = {}
    composed: dict[str, dict[str, Any]] = {}
    hard: list[HardQuestion]

    def maker(self, table: _Table, name: str) -> Maker | None:
        """Return the maker of a column's cells; None for keys and refs."""
        column = table.columns[name]
        if name in table.given.columns:
            return values.given(table.given.column(name))
        if column.maker is None:
            return None
        if column.maker in self.composed:
            arguments: dict[str, Any] = {
                key: self._words(value) if isinstance(value, str) else value
                for key, value in self.composed[column.maker].items()
            }
            return values.composed(**arguments)
        maker: Maker = getattr(values, column.maker)(**(column.model_extra or {}))
        return maker

    def _words(self, text: str) -> tuple[str, ...]:
        """Return the words of a list, or of the lists that it names (`@heads @street_heads`)."""
        if not text.startswith("@"):
            return listed(text)
        lists = LISTS | self.words
        return tuple(word for name in text.split() for word in lists[name.removeprefix("@")])

    def table(self, name: str) -> Table:
        """Return the table `name` as a spec."""
        table = self.tables[name]
        phrases = {
            column: (self.tables[spec.references].singular,)
            for column, spec in table.columns.items()
            if spec.references is not None
        } | table.phrases
        columns = tuple(
            Column(
                column,
                spec.kind,
                self.maker(table, column),
                phrases.get(column, ()),
                spec.references,
                spec.null_share,
            )
            for column, spec in table.columns.items()
        )
        rows = table.rows if table.rows is not None else len(table.given.rows)
        return Table(name, table.singular, table.plural, columns, rows)


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
    file = _File.model_validate(read_toml(f"shipped/{db_id}.toml"))
    tables = tuple(map(file.table, file.tables))
    lookup: Lookup = dict(file.lookup)
    for table in file.tables.values():
        for name in set(table.given.columns) - set(table.columns):
            lookup[name] = dict(enumerate(table.given.column(name), start=1))
    hard = tuple(HardQuestion(_one_line(each.text), _one_line(each.sql)) for each in file.hard)
    return Shipped(Domain(db_id, file.title, tables, hard), unseen, lookup)


def _one_line(text: str) -> str:
    return " ".join(text.split())


SHIPPED = tuple(load(db_id, unseen=db_id in UNSEEN) for db_id in (*SEEN, *UNSEEN))
