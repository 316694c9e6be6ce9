"""What a database is about: tables, columns, and the words that a question uses for them. Pure
data."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

Value = int | float | str | None
# (stream, how many) -> that many cells, NULLs among them
Maker = Callable[[random.Random, int], list[Value]]
Rows = dict[str, list[tuple[Value, ...]]]  # table -> its rows, in column order


class Kind(StrEnum):
    """What a column is for, and so which questions may use it."""

    KEY = "key"  # the table's integer primary key
    REF = "ref"  # a foreign key to another table's KEY
    NAME = "name"  # tells a row apart for people: a person's or a product's name
    CATEGORY = "category"  # text with few distinct values, shared by many rows
    TEXT = "text"  # other text, about one value a row: an email, a code
    INTEGER = "integer"
    REAL = "real"
    DATE = "date"  # ISO text, YYYY-MM-DD

    @property
    def sql_type(self) -> str:
        match self:
            case Kind.KEY | Kind.REF | Kind.INTEGER:
                return "INTEGER"
            case Kind.REAL:
                return "REAL"
            case Kind.DATE:
                return "DATE"
            case _:
                return "TEXT"


@dataclass(frozen=True)
class Column:
    """`phrases` are how a question may say it; each shares a word with `name`, so that DESCRIBE
    resolves it."""

    name: str
    kind: Kind
    values: Maker | None = None  # none for KEY and REF: populate makes those
    phrases: tuple[str, ...] = ()  # default: the name, underscores as spaces
    references: str | None = None  # REF: the table
    null_share: float = 0.0  # REF: share of rows that refer to nothing

    @property
    def said(self) -> tuple[str, ...]:
        return self.phrases or (self.name.replace("_", " "),)


@dataclass(frozen=True)
class Table:
    """`singular` and `plural` are the nouns for one row and for rows; the plural shares a word with
    `name`."""

    name: str
    singular: str
    plural: str
    columns: tuple[Column, ...]
    rows: int

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def of_kind(self, *kinds: Kind) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind in kinds)

    @property
    def key(self) -> Column:
        return self.of_kind(Kind.KEY)[0]


@dataclass(frozen=True)
class HardQuestion:
    """A question written by hand for one shipped domain, with its gold."""

    text: str
    sql: str


@dataclass(frozen=True)
class Domain:
    """Tables in an order in which every REF points to an earlier table (or to its own)."""

    db_id: str
    title: str
    tables: tuple[Table, ...]
    hard: tuple[HardQuestion, ...] = ()

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


@dataclass(frozen=True)
class Draft:
    """A question before its gold has run. `script` is how a near-expert answers it, ANSWER aside:
    action texts."""

    text: str
    sql: str
    difficulty: str  # easy, medium, hard
    tables: tuple[str, ...]
    form: str  # the template's name, for balance and for hold-outs
    script: tuple[str, ...] = ()
