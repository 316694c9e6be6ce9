"""Mend the names and the cells of a SQLite database, as an import of CSV files does.

Names become such as SQL reads without quotes. A column whose cells are all numbers, dates, times or
booleans in one spelling (`data.cell_formats`) gets their values, and a type that keeps these. Keys
and columns of unique indexes keep their cells, as other tables or rows depend on them, and so do
columns of their names in other tables.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from sqlglot.dialects.sqlite import SQLite

from data.cell_formats import Column, column_of, is_missing
from data.column_names import DAYS, Value, days_of, name_words
from data.sources.duck_tables import LONG, SAMPLE
from data.sources.table_files import plain_names, table_name
from shared.sqltext import quote_identifier

AFTER_TYPE = re.compile(
    "CONSTRAINT|PRIMARY|NOT|NULL|UNIQUE|CHECK|DEFAULT|COLLATE|REFERENCES|GENERATED|AS|[,)]",
    re.IGNORECASE,
)
MAX_VM_STEPS = 5_000_000  # of a look at a view


@dataclass
class Mended:
    """What mending changes, or would change: new names by old ones, and a line on each change."""

    tables: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    readers: list[Callable[[Any], Value | None]] = field(default_factory=list)  # of changed cells


class _Rewrite(NamedTuple):
    """A column that gets other values, and how they are read."""

    table: str
    column: str
    reading: Column


def mend(path: Path, *, write: bool) -> Mended:
    """Mend a database in place; unless `write`, only find out, by the first rows of each table."""
    found = Mended()
    with closing(_opened(path)) as connection:
        listed = "schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
        names = connection.execute(f"SELECT name FROM pragma_table_list WHERE {listed}").fetchall()
        tables = sorted(str(name) for (name,) in names)
        keys = {key for table in tables for key in _keys(connection, table)}
        rewrites = [new for one in tables for new in _rewrites(connection, one, keys, write, found)]
        done = [one for one in rewrites if not write or _allowed(connection, one, found)]
        found.changes += [
            f"{one.table}.{one.column} {one.reading.note}" for one in done if one.reading.note
        ]
        found.readers = [_reader(one.reading) for one in done]
        filled = _views(connection, empty=False) if write and done else set[str]()
        if write:
            _declare(connection, done)
    with closing(_opened(path)) as connection:  # it reads the new types
        for table in tables if write else ():
            if of_table := [one for one in done if one.table == table]:
                _apply(connection, of_table)
        found.problems += [
            f"the view {one} has no rows now: it compares cells as they were"
            for one in sorted(filled and filled & _views(connection, empty=True))
        ]
        _rename(connection, tables, write, found)
    return found


def _views(connection: apsw.Connection, *, empty: bool) -> set[str]:
    """Return the views without rows, or else those with some, as far as little work shows it."""
    found = set[str]()
    connection.set_progress_handler(lambda: True, MAX_VM_STEPS)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'"):
        with suppress(apsw.Error):  # a costly view, or one of what is missing
            rows = connection.execute(f"SELECT 1 FROM {quote_identifier(name)} LIMIT 1").fetchall()
            if empty is not bool(rows):
                found.add(name)
    connection.set_progress_handler(None)
    return found


def _opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    """Return the columns that are not generated."""
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE NOT hidden", (table,))
    return [str(name) for (name,) in rows]


def _rewrites(
    connection: apsw.Connection, table: str, keys: Set[str], whole: bool, found: Mended
) -> Iterator[_Rewrite]:
    readings: dict[str, Column] = {}
    for name in _columns(connection, table):
        if name.lower() not in keys:
            # a collation that is not loaded; not UTF-8
            with suppress(apsw.Error, UnicodeDecodeError):
                readings[name] = _reading(connection, table, name, whole)
    marks = {reading.decimal for reading in readings.values() if reading.decimal}
    for name, reading in readings.items():
        if reading.decimal is None and len(marks) == 1:
            reading = _reading(connection, table, name, whole, min(marks))
        if reading.spelling:
            yield _Rewrite(table, name, reading)
        elif reading.note:
            found.changes.append(f"{table}.{name} {reading.note}")


def _keys(connection: apsw.Connection, table: str) -> set[str]:
    """Return the columns, in lower case, by which rows are found or linked."""
    queries = (
        "SELECT name FROM pragma_table_info(?1) WHERE pk",
        'SELECT "from" FROM pragma_foreign_key_list(?1)',
        'SELECT "to" FROM pragma_foreign_key_list(?1)',
        "SELECT c.name FROM pragma_index_list(?1) AS i, pragma_index_info(i.name) AS c "
        'WHERE i."unique"',
    )
    found = [one for query in queries for (one,) in connection.execute(query, (table,))]
    return {str(name).lower() for name in found if name is not None}


def _reading(
    connection: apsw.Connection, table: str, name: str, whole: bool, decimal: str = ""
) -> Column:
    """Return how to read a column; as text if it is to keep its cells. `decimal` is the mark of
    decimals of the table's other columns, if they have one."""
    column, rows = quote_identifier(name), quote_identifier(table)
    sample = f"(SELECT {column} FROM {rows} LIMIT {SAMPLE})"
    source = rows if whole else sample

    def cells(source: str) -> Iterator[tuple[str, int]]:
        yield from connection.execute(
            f"SELECT substr(CAST({column} AS TEXT), 1, {LONG + 1}), count(*) FROM {source} "
            f"WHERE {column} NOTNULL GROUP BY 1"
        )

    tests = ", ".join(f"total(typeof({column}) = '{one}')" for one in ("text", "blob"))
    texts, blobs = connection.execute(f"SELECT {tests} FROM {source}").fetchall()[0]
    words = name_words(name)
    if blobs or not (texts or DAYS.search(words)):
        return Column()
    read = column_of(lambda: cells(source), decimal, cells(sample), words)
    if not read.spelling:
        return read if whole else Column(decimal=read.decimal)
    kind = read.spelling[0]
    if kind == "number" and DAYS.search(words):
        known = [read.read(cell) for cell, _ in cells(source)]
        if days := days_of(words, [one for one in known if isinstance(one, int | float)]):
            read = replace(read, kind="TEXT", day=days[0], note=days[1])
    if read.kind != "TEXT" and not texts:
        return Column()
    note = read.note
    if read.kind != "TEXT":
        note = note or f"is read as {kind}s, which were text"
    if nulls := list(islice((repr(cell) for cell, _ in cells(source) if is_missing(cell)), 3)):
        note = f"{note}{', and ' * bool(note)}has NULL for {' and '.join(nulls)}"
    return replace(read, note=note)


def _declare(connection: apsw.Connection, rewrites: Iterable[_Rewrite]) -> None:
    """Give columns of text the types of their new values, which would become text again."""
    for one in rewrites:
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
        [(sql,)] = connection.execute(query, (one.table,)).fetchall()
        kind = one.reading.kind
        if kind != "TEXT" and (new := _with_type(str(sql), one.column, kind)) != sql:
            connection.execute("PRAGMA writable_schema = ON")
            change = "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?"
            connection.execute(change, (new, one.table))
            connection.execute("PRAGMA writable_schema = RESET; REINDEX")


def _with_type(sql: str, column: str, kind: str) -> str:
    """Return a CREATE TABLE in which a column that is declared as text has another type."""
    tokens = SQLite().tokenize(sql)
    depth = 0
    for at, token in enumerate(tokens):
        begins = depth == 1 and tokens[at - 1].text in ("(", ",")
        if begins and token.text.lower() == column.lower():
            end = at + 1
            while not AFTER_TYPE.fullmatch(tokens[end].text):
                end += 1
                if tokens[end - 1].text == "(":  # VARCHAR(20)
                    end = next(i for i in range(end, len(tokens)) if tokens[i].text == ")") + 1
            declared = sql[token.end + 1 : tokens[end].start]
            text = any(mark in declared.upper() for mark in ("CHAR", "CLOB", "TEXT"))
            cut = token.end + 1
            return f"{sql[:cut]} {kind} {sql[tokens[end].start :]}" if text else sql
        depth += (token.text == "(") - (token.text == ")")
    return sql


def _allowed(connection: apsw.Connection, rewrite: _Rewrite, found: Mended) -> bool:
    """Return whether a column may have its new values; a constraint that forbids them is a
    problem."""
    connection.execute("SAVEPOINT trial")
    try:
        _apply(connection, [rewrite])
    except apsw.Error as error:
        found.problems.append(f"{rewrite.table}.{rewrite.column} keeps its texts: {error}")
        return False
    finally:
        connection.execute("ROLLBACK TO trial; RELEASE trial")
    return True


def _apply(connection: apsw.Connection, rewrites: Sequence[_Rewrite]) -> None:
    """Write the new values of columns of one table, in one statement: another would read texts that
    this one had to store by the new types."""

    def value(*given: Any) -> Value | None:
        place, cell = given
        return None if cell is None else rewrites[place].reading.read(str(cell))

    connection.create_scalar_function("mended", value, 2, deterministic=True)
    columns = [quote_identifier(one.column) for one in rewrites]
    changes = ", ".join(f"{one} = mended({place}, {one})" for place, one in enumerate(columns))
    connection.execute(f"UPDATE {quote_identifier(rewrites[0].table)} SET {changes}")


def _reader(reading: Column) -> Callable[[Any], Value | None]:
    """Return what reads a cell of a column, and None of any other cell."""

    def read(cell: Any) -> Value | None:
        with suppress(KeyError, ValueError, OverflowError):
            return reading.read(cell)
        return None

    return read


def _rename(connection: apsw.Connection, tables: Iterable[str], write: bool, found: Mended) -> None:
    taken = {table.lower() for table in tables}
    # a name, in any letter case, has one new name in all tables: queries are translated by it
    every = {one.lower(): one for table in tables for one in _columns(connection, table)}
    new_names = dict(zip(every, plain_names(list(every.values())), strict=True))
    for table in tables:
        columns = {one: new_names[one.lower()] for one in _columns(connection, table)}
        new_table = table_name(table)
        if new_table != table and new_table.lower() in taken - {table.lower()}:
            new_table = table
        name = quote_identifier(table)
        changes = [
            (found.columns, one, new, f"RENAME COLUMN {quote_identifier(one)} TO")
            for one, new in columns.items()
            if new.lower() != one.lower()
        ]
        if new_table != table:
            changes.append((found.tables, table, new_table, "RENAME TO"))
            taken.add(new_table.lower())
        for renamed, one, new, change in changes:
            try:
                if write:
                    connection.execute(f"ALTER TABLE {name} {change} {quote_identifier(new)}")
            except apsw.Error as error:  # such as a view of columns that are missing
                found.problems.append(f"{table}: {one!r} keeps its name: {error}")
                continue
            renamed[one] = new
            found.changes.append(f"{table}: {one!r} is called {new}")
