"""What forms of question share: picks of tables, columns, values and wordings of a database."""

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from data.domains.spec import Column, Domain, Draft, Kind, Rows, Table, Value
from data.domains.words import LISTS, indefinite, is_plural, read_toml
from shared.sqltext import quote_text

T = TypeVar("T")

NUMBERS = (Kind.INTEGER, Kind.REAL)
ATTRIBUTES = (*NUMBERS, Kind.TEXT, Kind.CATEGORY, Kind.DATE)
MIN_MATCHES = 2  # rows that a condition must keep, so that counts of 0 and 1 are rare
MAX_SHARE = 0.85  # of the rows that a condition may keep
DATE_CHARS = len("2020-12-31")
MAX_LITERAL_CHARS = 40  # a longer value does not belong in a question
WORDINGS: dict[str, list[str]] = read_toml("question_forms/wordings.toml")


# for a plural noun, for a singular one, in SQL
_COMPARISONS: tuple[tuple[str, str, str, Callable[[Any, Any], bool]], ...] = (
    ("more than", "above", ">", operator.gt),
    ("more than", "greater than", ">", operator.gt),
    ("less than", "below", "<", operator.lt),
    ("less than", "less than", "<", operator.lt),
    ("at least", "at least", ">=", operator.ge),
    ("at most", "at most", "<=", operator.le),
)


class NoQuestionError(Exception):
    """The template has no question about the tables and values that it drew."""


def need(condition: object) -> None:
    if not condition:
        raise NoQuestionError


@dataclass(frozen=True)
class Condition:
    """A restriction of one column's values, in English and in SQL.

    `having` follows 'with' or 'have' (`a price above 30`), `whose` follows the noun (`whose price
    is above 30`).
    """

    column: Column
    having: str
    whose: str
    comparison: str  # what follows the column's name in SQL
    test: Callable[[Value], bool]

    def where(self, prefix: str = "") -> str:
        return f"{prefix}{self.column.name} {self.comparison}"


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
    return quote_text(value) if isinstance(value, str) else number(value)


def number(value: Value) -> str:
    """Return a number as questions and SQL write it: `12` for 12.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class Asker:
    """One database and the stream that all choices of a template come from.

    Every method that picks raises `NoQuestionError` if nothing in the database fits.
    """

    def __init__(self, domain: Domain, rows: Rows, rng: random.Random) -> None:
        self.domain = domain
        self.rows = rows
        self.rng = rng
        self.form = self.difficulty = ""  # of the question
        self.marks = "'"  # quotation marks of text values; "" if a value can go without

    # Tables, columns and cells

    def table(self, *kinds: Kind | tuple[Kind, ...]) -> Table:
        """Pick a table with a column of each of `kinds` (a tuple: of one of its kinds)."""
        wanted = [kind if isinstance(kind, tuple) else (kind,) for kind in kinds]
        return self.one([t for t in self.domain.tables if all(t.of_kind(*some) for some in wanted)])

    def column(self, table: Table, *kinds: Kind, but: tuple[Column, ...] = ()) -> Column:
        """Pick a column of one of `kinds` that is not in `but`."""
        return self.one([column for column in table.of_kind(*kinds) if column not in but])

    def any_column(self, *kinds: Kind, complete: bool = False) -> tuple[Table, Column]:
        """Pick a table and a column of one of `kinds`, without NULL if it must be `complete`."""
        table = self.table(kinds)
        column = self.column(table, *kinds)
        return table, self.complete(table, column) if complete else column

    def named_column(self, *kinds: Kind, complete: bool = False) -> tuple[Table, Column, Column]:
        """Pick a table, its NAME and a column of one of `kinds`, as `any_column` does."""
        table = self.table(Kind.NAME, kinds)
        name, column = self.column(table, Kind.NAME), self.column(table, *kinds)
        return table, name, self.complete(table, column) if complete else column

    def one(self, options: Sequence[T]) -> T:
        need(options)
        return self.rng.choice(options)

    def cells(self, table: Table, column: Column) -> list[Value]:
        """Return the column's cells, NULLs included."""
        index = table.columns.index(column)
        return [row[index] for row in self.rows[table.name]]

    def known(self, table: Table, column: Column) -> list[Value]:
        return [cell for cell in self.cells(table, column) if cell is not None]

    def complete(self, table: Table, column: Column) -> Column:
        """Return `column` if it has no NULL: a row without a value could be the answer."""
        need(None not in self.cells(table, column))
        return column

    def named_row(self, table: Table, name: Column) -> tuple[str, tuple[Value, ...]]:
        """Pick a name that only one row has; return it and the row."""
        index = table.columns.index(name)
        row = self.one(self.rows[table.name])
        cell = row[index]
        if not isinstance(cell, str) or not 0 < len(cell) <= MAX_LITERAL_CHARS:
            raise NoQuestionError
        need(sum(other[index] == cell for other in self.rows[table.name]) == 1)
        return cell, row

    def link(self, child_kinds: tuple[Kind, ...] = (), parent_kinds: tuple[Kind, ...] = ()) -> Link:
        """Pick a foreign key that is the only one between its two tables, in either direction."""
        links = []
        for child in self.domain.tables:
            refs = child.of_kind(Kind.REF)
            for ref in refs:
                targets = [other.references for other in refs]
                if ref.references in (None, child.name) or targets.count(ref.references) > 1:
                    continue
                parent = self.domain.table(str(ref.references))
                if any(other.references == child.name for other in parent.of_kind(Kind.REF)):
                    continue
                fits = not child_kinds or child.of_kind(*child_kinds)
                if fits and (not parent_kinds or parent.of_kind(*parent_kinds)):
                    links.append(Link(child, ref, parent))
        return self.one(links)

    def start(self, form: str, difficulty: str) -> None:
        """Begin a question; pick one way to quote text values in it."""
        self.form, self.difficulty = form, difficulty
        self.marks = self.rng.choices(("'", '"', ""), (5, 2, 3))[0]

    # English

    def draft(
        self, tables: Table | Link | tuple[Table, ...], sql: str, *wordings: str, **fields: object
    ) -> Draft:
        """Return a draft with one of the texts of `wordings`, keys of wordings.toml; of the form's.

        Besides `fields`, a text may use `singular` and `plural` (the first table's nouns), and
        `a_column` and `are`, which follow from `column`.
        """
        if isinstance(tables, Link):
            tables = (tables.child, tables.parent)
        read = tables if isinstance(tables, tuple) else (tables,)
        text = self.rng.choice([text for key in wordings or [self.form] for text in WORDINGS[key]])
        fields |= {"singular": read[0].singular, "plural": read[0].plural}
        if column := str(fields.get("column", "")):
            fields |= {"a_column": indefinite(column), "are": _be(column)}
        text = text.format(**fields)
        names = tuple(table.name for table in read)
        return Draft(text[0].upper() + text[1:], sql, self.difficulty, names, self.form)

    def draft_count(
        self, table: Table | Link, where: str, *wordings: str, **fields: object
    ) -> Draft:
        """Return a draft that asks for the number of rows that meet a condition."""
        source = table.join if isinstance(table, Link) else table.name
        sql = f"SELECT COUNT(*) FROM {source} WHERE {where}"
        return self.draft(table, sql, *wordings, **fields)

    def phrase(self, column: Column) -> str:
        return self.rng.choice(column.wordings)

    def amount(self, column: Column) -> str:
        """Pick a phrase for one value: `price`; `number of goals` for the number column `goals`."""
        phrase = self.phrase(column)
        return f"number of {phrase}" if column.kind in NUMBERS and is_plural(phrase) else phrase

    def role(self, link: Link) -> str:
        """Pick a phrase for the parent: one of the REF column's own, else the parent's noun."""
        return self.rng.choice(link.ref.phrases) if link.ref.phrases else link.parent.singular

    def quote(self, value: Value) -> str:
        """Return a value as a question writes it, verbatim; text is mostly in quotation marks."""
        if not isinstance(value, str):
            return number(value)
        if len(value) == 10 and value[4] == value[7] == "-" and value[:4].isdigit():  # a date
            return value
        if "'" in value:
            return f'"{value}"'
        if not self.marks and value[0].isupper() and value.replace(" ", "").isalpha():
            return value
        marks = self.marks or "'"
        return f"{marks}{value}{marks}"

    # Conditions

    def condition(self, table: Table, *kinds: Kind, but: tuple[Column, ...] = ()) -> Condition:
        """Return a condition on a column of one of `kinds` that keeps some rows but not most."""
        column = self.column(table, *kinds, but=but)
        if column.kind is Kind.CATEGORY:
            condition = self._equals(table, column)
        elif column.kind is Kind.DATE:
            condition = self._compares_dates(table, column)
        else:
            condition = self._compares_numbers(table, column)
        matches = len(self.matching(table, condition))
        need(MIN_MATCHES <= matches <= MAX_SHARE * len(self.rows[table.name]))
        return condition

    def _equals(self, table: Table, column: Column) -> Condition:
        value = self.one(self.known(table, column))
        need(len(str(value)) <= MAX_LITERAL_CHARS)
        phrase, quoted = self.phrase(column), self.quote(value)
        having, whose = f"the {phrase} {quoted}", f"whose {phrase} {_be(phrase)} {quoted}"
        return Condition(column, having, whose, f"= {literal(value)}", lambda cell: cell == value)

    def _compares_dates(self, table: Table, column: Column) -> Condition:
        cells = sorted({str(cell) for cell in self.known(table, column)})
        value = self.one(cells[len(cells) // 10 : -len(cells) // 10 or None])
        phrase = self.phrase(column)
        after = self.rng.random() < 0.5
        word, sign = ("after", ">") if after else ("before", "<")
        if len(value) > DATE_CHARS:  # with a time of day, which no question needs
            value = value[:DATE_CHARS]
            word, sign = ("on or after", ">=") if after else (word, sign)
        compare = {">": operator.gt, ">=": operator.ge, "<": operator.lt}[sign]
        having = f"{indefinite(phrase)} {word} {value}"
        whose = f"whose {phrase} {_be(phrase)} {word} {value}"
        comparison = f"{sign} '{value}'"
        return Condition(column, having, whose, comparison, lambda cell: compare(str(cell), value))

    def threshold(self, table: Table, column: Column) -> int | float:
        """Pick a number well inside the column's range, mostly rounder than the cells."""
        cells = sorted(cell for cell in self.known(table, column) if isinstance(cell, int | float))
        need(len(cells) >= 5)
        value = cells[int(len(cells) * self.rng.uniform(0.1, 0.9))]
        if isinstance(value, float) and self.rng.random() < 0.8:
            return round(value) if cells[-1] - cells[0] > 20 else round(value, 1)
        if isinstance(value, int) and cells[-1] - cells[0] > 1000:
            return round(value, -2)
        return value

    def _compares_numbers(self, table: Table, column: Column) -> Condition:
        value = self.threshold(table, column)
        amount, clause, sign, compare = self.rng.choice(_COMPARISONS)
        phrase = self.phrase(column)
        if is_plural(phrase):
            amount = "fewer than" if sign == "<" else amount
            having = f"{amount} {number(value)} {phrase}"
            whose = f"whose number of {phrase} is {clause} {number(value)}"
        else:
            relation = clause if clause in ("above", "below") else f"of {amount}"
            having = f"{indefinite(phrase)} {relation} {number(value)}"
            whose = f"whose {phrase} is {clause} {number(value)}"
        comparison = f"{sign} {number(value)}"
        return Condition(column, having, whose, comparison, lambda cell: compare(cell, value))

    def matching(self, table: Table, *conditions: Condition) -> list[tuple[Value, ...]]:
        checks = [(table.columns.index(each.column), each.test) for each in conditions]

        def meets(row: tuple[Value, ...]) -> bool:
            return all(row[index] is not None and test(row[index]) for index, test in checks)

        return list(filter(meets, self.rows[table.name]))


def additive(column: Column) -> bool:
    """Return whether a sum over the column is meaningful, judged by its phrases."""
    words = {word for phrase in column.wordings for word in phrase.lower().split()}
    return words.isdisjoint(LISTS["not_additive"])


def _be(phrase: str) -> str:
    return "are" if is_plural(phrase) else "is"
