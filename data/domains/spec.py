"""What a database is about: its tables and columns, and the words that questions use for them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Value = int | float | str | None
Maker = Callable[[random.Random, int], list[Value]]  # (stream, count) -> cells, NULLs included
Rows = dict[str, list[tuple[Value, ...]]]  # table -> its rows, in column order


class Kind(StrEnum):
    """What a column is for, and so which questions may use it."""

    KEY = "key"  # the table's integer primary key
    REF = "ref"  # a foreign key to another table's KEY
    NAME = "name"  # identifies a row to people: a person's or a product's name
    CATEGORY = "category"  # text with few distinct values, shared by many rows
    TEXT = "text"  # other text, about one value per row: an email, a code
    INTEGER = "integer"
    REAL = "real"
    DATE = "date"  # ISO text, YYYY-MM-DD


@dataclass(frozen=True)
class Column:
    """A column. Each phrase shares a word with `name`, so that DESCRIBE resolves it."""

    name: str
    kind: Kind
    values: Maker | None = None  # of a fresh column; None for KEY and REF, which populate fills
    phrases: tuple[str, ...] = ()  # what questions call it; default: see `wordings`
    references: str | None = None  # REF: the table
    null_share: float = 0.0  # REF: share of rows that refer to nothing

    @property
    def wordings(self) -> tuple[str, ...]:
        """The column's phrases; without any, its name with spaces for underscores."""
        return self.phrases or (self.name.replace("_", " "),)


@dataclass(frozen=True)
class Table:
    """A table with the nouns for its rows; `plural` shares a word with `name`."""

    name: str
    singular: str
    plural: str
    columns: tuple[Column, ...]
    rows: int

    def of_kind(self, *kinds: Kind) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind in kinds)

    @property
    def key(self) -> Column:
        return self.of_kind(Kind.KEY)[0]


@dataclass(frozen=True)
class Domain:
    """A database's tables. Every REF refers to an earlier table or to its own."""

    db_id: str
    tables: tuple[Table, ...]

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


@dataclass(frozen=True)
class Draft:
    """A question whose gold has not run yet."""

    text: str
    sql: str
    difficulty: str  # easy, medium or hard
    tables: tuple[str, ...]
    form: str  # the template's name, or hard
