"""What templates share: a database with its random stream, picks of tables, columns and values, and
bits of English."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from data.domains.spec import Column, Domain, Draft, Kind, Rows, Table, Value
from data.domains.words import WORDS, indefinite, is_plural
from shared.sqltext import quote_text

T = TypeVar("T")

NUMBERS = (Kind.INTEGER, Kind.REAL)
MIN_MATCHES = 2  # rows a condition must leave, so that counts of 0 and 1 are rare
MAX_SHARE = 0.85  # of the rows that a condition may leave
MAX_LITERAL_CHARS = 40  # a longer value does not belong in a question


class NoQuestionError(Exception):
    """This template has nothing to ask of the tables and values that it drew."""


@dataclass(frozen=True)
class Condition:
    """A restriction of one column's values: two pieces of English, the SQL, and the test of a cell.

    `having` follows 'with' or 'have' (`a price above 30`), `whose` follows the noun (`whose price
    is above 30`).
    """

    column: Column
    having: str
    whose: str
    sql: str  # with `{column}` in the place of the column's name
    test: Callable[[Value], bool]

    def where(self, prefix: str = "") -> str:
        return self.sql.replace("{column}", prefix + self.column.name, 1)


@dataclass(frozen=True)
class Link:
    """A child table whose `ref` column points to a parent table's key."""

    child: Table
    ref: Column
    parent: Table

    @property
    def join(self) -> str:
        """`child JOIN parent ON ...`, for FROM."""
        on = f"{self.child.name}.{self.ref.name} = {self.parent.name}.{self.parent.key.name}"
        return f"{self.child.name} JOIN {self.parent.name} ON {on}"


def literal(value: Value) -> str:
    """A cell as SQL writes it."""
    return quote_text(value) if isinstance(value, str) else number(value)


def number(value: Value) -> str:
    """A number as questions and SQL write it: `12` for 12.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class Asker:
    """One database and the stream that all of a template's choices come from.

    Every picker raises `NoQuestionError` where the database has nothing that fits.
    """

    def __init__(self, domain: Domain, rows: Rows, rng: random.Random) -> None:
        self.domain = domain
        self.rows = rows
        self.rng = rng
        self.marks = "'"  # around text values; none where the value can go without

    # Tables, columns and cells

    def table(self, *kinds: Kind | tuple[Kind, ...]) -> Table:
        """A table with a column of each of `kinds` (a tuple: of one of its kinds)."""
        wanted = [kind if isinstance(kind, tuple) else (kind,) for kind in kinds]
        return self.one([t for t in self.domain.tables if all(t.of_kind(*some) for some in wanted)])

    def column(self, table: Table, *kinds: Kind, but: tuple[Column, ...] = ()) -> Column:
        return self.one([column for column in table.of_kind(*kinds) if column not in but])

    def one(self, options: Sequence[T]) -> T:
        if not options:
            raise NoQuestionError
        return self.rng.choice(options)

    def cells(self, table: Table, column: Column) -> list[Value]:
        """The column's cells, NULLs among them."""
        index = table.columns.index(column)
        return [row[index] for row in self.rows[table.name]]

    def known(self, table: Table, column: Column) -> list[Value]:
        """The column's cells that are not NULL."""
        return [cell for cell in self.cells(table, column) if cell is not None]

    def has_null(self, table: Table, column: Column) -> bool:
        return None in self.cells(table, column)

    def complete(self, table: Table, column: Column) -> Column:
        """`column`, if it holds no NULL: elsewhere a row without a value could be the answer."""
        if self.has_null(table, column):
            raise NoQuestionError
        return column

    def named_row(self, table: Table, name: Column) -> tuple[str, tuple[Value, ...]]:
        """A name that only one row has, and that row."""
        index = table.columns.index(name)
        row = self.one(self.rows[table.name])
        cell = row[index]
        if not isinstance(cell, str) or not 0 < len(cell) <= MAX_LITERAL_CHARS:
            raise NoQuestionError
        if sum(other[index] == cell for other in self.rows[table.name]) != 1:
            raise NoQuestionError
        return cell, row

    def link(self, child_kinds: tuple[Kind, ...] = (), parent_kinds: tuple[Kind, ...] = ()) -> Link:
        """A foreign key between two tables that is the only one between them."""
        links = []
        for child in self.domain.tables:
            for ref in child.of_kind(Kind.REF):
                twins = [
                    other for other in child.of_kind(Kind.REF) if other.references == ref.references
                ]
                if ref.references is None or ref.references == child.name or len(twins) > 1:
                    continue
                parent = self.domain.table(ref.references)
                if (not child_kinds or child.of_kind(*child_kinds)) and (
                    not parent_kinds or parent.of_kind(*parent_kinds)
                ):
                    links.append(Link(child, ref, parent))
        return self.one(links)

    def restart(self) -> None:
        """Before each question: one way to quote text values in it."""
        self.marks = self.rng.choices(("'", '"', ""), (5, 2, 3))[0]

    # English

    def say(self, *texts: str, **parts: object) -> str:
        """One of `texts` with `parts` filled in, its first letter in upper case."""
        text = self.rng.choice(texts).format(**parts)
        return text[0].upper() + text[1:]

    def phrase(self, column: Column) -> str:
        return self.rng.choice(column.said)

    def amount(self, column: Column) -> str:
        """A column as one value that a row has: `price`, `city`; `number of goals` for the number
        column `goals`."""
        phrase = self.phrase(column)
        return f"number of {phrase}" if column.kind in NUMBERS and is_plural(phrase) else phrase

    def role(self, link: Link) -> str:
        """What the parent is to the child: the REF column's own phrase where it has one, else the
        parent's noun."""
        return self.rng.choice(link.ref.phrases) if link.ref.phrases else link.parent.singular

    def quote(self, value: Value) -> str:
        """A value as a question writes it: numbers and dates bare, text mostly in quotes, always
        verbatim."""
        if not isinstance(value, str):
            return number(value)
        if _is_date(value):
            return value
        if "'" in value:
            return f'"{value}"'
        if not self.marks and value[0].isupper() and value.replace(" ", "").isalpha():
            return value
        marks = self.marks or "'"
        return f"{marks}{value}{marks}"

    def draft(self, text: str, sql: str, *tables: Table) -> Draft:
        """A draft whose script describes `tables` in order and runs the gold. `ask` adds form and
        difficulty."""
        names = tuple(table.name for table in tables)
        script = (*(f"DESCRIBE: {name}" for name in names), f"QUERY: {sql}")
        return Draft(text=text, sql=sql, difficulty="", tables=names, form="", script=script)

    # Conditions

    def condition(self, table: Table, *kinds: Kind, but: tuple[Column, ...] = ()) -> Condition:
        """A condition on a column of one of `kinds` that leaves some of the table's rows, but not
        nearly all."""
        column = self.column(table, *kinds, but=but)
        if column.kind is Kind.CATEGORY:
            made = self._equals(table, column)
        elif column.kind is Kind.DATE:
            made = self._compares_dates(table, column)
        else:
            made = self._compares_numbers(table, column)
        matches = sum(cell is not None and made.test(cell) for cell in self.cells(table, column))
        if not MIN_MATCHES <= matches <= MAX_SHARE * len(self.rows[table.name]):
            raise NoQuestionError
        return made

    def _equals(self, table: Table, column: Column) -> Condition:
        value = self.one(self.known(table, column))
        if len(str(value)) > MAX_LITERAL_CHARS:
            raise NoQuestionError
        phrase, said = self.phrase(column), self.quote(value)
        return Condition(
            column,
            having=f"the {phrase} {said}",
            whose=f"whose {phrase} {_be(phrase)} {said}",
            sql=f"{{column}} = {literal(value)}",
            test=lambda cell: cell == value,
        )

    def _compares_dates(self, table: Table, column: Column) -> Condition:
        cells = sorted({str(cell) for cell in self.known(table, column)})
        value = self.one(cells[len(cells) // 10 : -len(cells) // 10 or None])
        phrase = self.phrase(column)
        after = self.rng.random() < 0.5
        word, sign = ("after", ">") if after else ("before", "<")
        return Condition(
            column,
            having=f"{indefinite(phrase)} {word} {value}",
            whose=f"whose {phrase} {_be(phrase)} {word} {value}",
            sql=f"{{column}} {sign} '{value}'",
            test=lambda cell: str(cell) > value if after else str(cell) < value,
        )

    def threshold(self, table: Table, column: Column) -> int | float:
        """A number well inside the column's range, mostly a rounder one than the cells."""
        cells = sorted(cell for cell in self.known(table, column) if isinstance(cell, int | float))
        if len(cells) < 5:
            raise NoQuestionError
        value = cells[int(len(cells) * self.rng.uniform(0.1, 0.9))]
        if isinstance(value, float) and self.rng.random() < 0.8:
            return round(value) if cells[-1] - cells[0] > 20 else round(value, 1)
        if isinstance(value, int) and cells[-1] - cells[0] > 1000:
            return round(value, -2)
        return value

    def _compares_numbers(self, table: Table, column: Column) -> Condition:
        value = self.threshold(table, column)
        words, clause, sign = self.rng.choice(
            (
                ("more than", "above", ">"),
                ("more than", "greater than", ">"),
                ("less than", "below", "<"),
                ("less than", "less than", "<"),
                ("at least", "at least", ">="),
                ("at most", "at most", "<="),
            )
        )
        phrase = self.phrase(column)
        if is_plural(phrase):
            if sign == "<":
                words = "fewer than"
            having = f"{words} {number(value)} {phrase}"
            whose = f"whose number of {phrase} is {clause} {number(value)}"
        else:
            having = f"{indefinite(phrase)} {clause if clause in ('above', 'below') else f'of {words}'} {number(value)}"
            whose = f"whose {phrase} is {clause} {number(value)}"
        tests: dict[str, Callable[[float], bool]] = {
            ">": lambda cell: cell > value,
            "<": lambda cell: cell < value,
            ">=": lambda cell: cell >= value,
            "<=": lambda cell: cell <= value,
        }
        test = tests[sign]
        return Condition(
            column,
            having,
            whose,
            sql=f"{{column}} {sign} {number(value)}",
            test=lambda cell: isinstance(cell, int | float) and test(cell),
        )

    def matching(self, table: Table, *conditions: Condition) -> list[tuple[Value, ...]]:
        """The rows that fit all conditions."""
        checks = [(table.columns.index(made.column), made.test) for made in conditions]
        return [
            row
            for row in self.rows[table.name]
            if all(row[index] is not None and test(row[index]) for index, test in checks)
        ]


def additive(column: Column) -> bool:
    """Whether a sum over the column means something, as far as its phrases tell."""
    words = {word for phrase in column.said for word in phrase.lower().split()}
    return words.isdisjoint(WORDS.not_additive)


def _is_date(value: str) -> bool:
    return len(value) == 10 and value[4] == value[7] == "-" and value[:4].isdigit()


def _be(phrase: str) -> str:
    return "are" if is_plural(phrase) else "is"
