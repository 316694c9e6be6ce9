"""Short ways to write a shipped domain: columns by kind, and edits that make a table's cells agree
with one another."""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass

from data.domains.lexicon import MAIL_DOMAINS
from data.domains.spec import Column, Domain, Kind, Maker, Rows, Value
from data.domains.values import ascii_letters

Finish = Callable[["Sheet", random.Random], None]


@dataclass(frozen=True)
class Shipped:
    """A domain of the shipped set. `finish` edits the populated rows; `unseen`: no training
    question touches it."""

    domain: Domain
    finish: Finish | None = None
    unseen: bool = False


def key(name: str) -> Column:
    return Column(name, Kind.KEY)


def ref(name: str, table: str, *said: str, null: float = 0.0) -> Column:
    return Column(name, Kind.REF, phrases=said, references=table, null_share=null)


def name(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.NAME, values, said)


def category(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.CATEGORY, values, said)


def text(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.TEXT, values, said)


def integer(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.INTEGER, values, said)


def real(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.REAL, values, said)


def date(name: str, values: Maker, *said: str) -> Column:
    return Column(name, Kind.DATE, values, said)


class Sheet:
    """The rows of a domain, open to edits."""

    def __init__(self, domain: Domain, rows: Rows) -> None:
        self._domain = domain
        self._rows = rows

    def records(self, table: str) -> dict[int, dict[str, Value]]:
        """key -> the row as a dict, in key order."""
        spec = self._domain.table(table)
        names = [column.name for column in spec.columns]
        found = (dict(zip(names, row, strict=True)) for row in self._rows[table])
        return {whole(record[spec.key.name]): record for record in found}

    def edit(self, table: str, change: Callable[[dict[str, Value]], dict[str, Value]]) -> None:
        """Replace, in each row of `table`, the cells that `change(row)` returns by column name."""
        changed = [record | change(record) for record in self.records(table).values()]
        names = [column.name for column in self._domain.table(table).columns]
        self._rows[table] = [tuple(record[name] for name in names) for record in changed]


def whole(value: Value) -> int:
    """`value`, which must be an integer."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def number(value: Value) -> float:
    """`value`, which must be a number."""
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def day(value: Value) -> dt.date:
    """`value`, which must be an ISO date."""
    return dt.date.fromisoformat(str(value))


def after(value: Value, days: int) -> str:
    """The ISO date `days` after the ISO date `value`."""
    return (day(value) + dt.timedelta(days=days)).isoformat()


def between(rng: random.Random, first: Value, last: Value) -> str:
    """An ISO date in [first, last]; `first` where that is empty."""
    start = day(first)
    return (start + dt.timedelta(days=rng.randint(0, max(0, (day(last) - start).days)))).isoformat()


def mailbox(rng: random.Random, row: dict[str, Value], name: str) -> dict[str, Value]:
    """The row's cell `email`, where it has one, made of the person's name in the cell `name`."""
    if row["email"] is None:
        return {}
    local = ".".join(ascii_letters(word) for word in str(row[name]).split())
    digits = str(rng.randint(1, 99)) if rng.random() < 0.5 else ""
    return {"email": f"{local}{digits}@{rng.choice(MAIL_DOMAINS)}"}
