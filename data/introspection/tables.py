"""The tables of a SQLite database: what their cells are, a sample of them, and their links.

The sample is for choosing what to ask; counts of storage classes are over the whole table. Views
and virtual tables are left out: their rows are those of tables.
"""

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, cast

import apsw

from data.domains.spec import Value
from data.introspection.names import core_of, nouns_of, record_nouns, singular, words_of
from shared.sqltext import sql_name

MAX_SAMPLE = 1_000  # rows of a table
MIN_SAMPLE = 100  # of fewer, the first rows are taken instead
ROWIDS = ("_rowid_", "rowid", "oid")  # SQLite's names of the row id; a column of that name hides it
CLASSES = ("integer", "real", "text", "blob", "null")
IDS = frozenset(("id", "number", "no", "nr", "code", "key"))
BLANKS = frozenset(("", "null", "n/a", "nan"))


@dataclass(eq=False)
class Cells:
    """A raw column: how many cells of each storage class there are, and its sampled cells."""

    name: str
    words: list[str]
    declared: str
    counts: Counter[str]  # of integer, real, text, blob and null
    sample: list[Value] = field(default_factory=list)

    @property
    def sql(self) -> str:
        return sql_name(self.name)

    @property
    def known(self) -> list[Value]:
        """Its sampled cells that hold something."""
        return [cell for cell in self.sample if not is_blank(cell)]


@dataclass(eq=False)
class RawTable:
    """A table as SQLite describes it."""

    name: str
    words: list[str]
    keys: list[Cells]  # of its primary key
    rowid: str | None  # the name of its row ids
    count: int
    columns: list[Cells]
    singular: str = ""
    plural: str = ""
    key: Cells | None = None  # the column that references lead to
    refs: "dict[Cells, RawTable]" = field(default_factory=dict)
    foreign: set[Cells] = field(default_factory=set)  # columns of declared references

    @property
    def sql(self) -> str:
        return sql_name(self.name)

    def column(self, name: str) -> Cells | None:
        return next((each for each in self.columns if each.name.lower() == name.lower()), None)


def is_blank(cell: Value) -> bool:
    """Return whether no question can quote a cell: NULL, `N/A`, infinity, spaces around a text."""
    if isinstance(cell, str):
        return cell.lower() in BLANKS or cell != cell.strip()
    return cell is None or not math.isfinite(cell)


def read_tables(
    connection: apsw.Connection, rng: random.Random
) -> tuple[list[RawTable], list[str]]:
    """Return the tables of two rows or more, with nouns and links, and the names of the others.
    Raises apsw's errors."""
    found = list(_tables(connection, rng))
    tables = [table for table in found if table.count > 1]
    _split_compounds(tables)
    _name_tables(tables)
    _link(tables, connection)
    return tables, [table.sql for table in found if table.count < 2]


def _tables(connection: apsw.Connection, rng: random.Random) -> Iterator[RawTable]:
    own = "schema = 'main' AND type = 'table' AND name NOT GLOB 'sqlite_*'"
    found = connection.execute(f"SELECT name, wr FROM pragma_table_list WHERE {own} ORDER BY name")
    for name, without_rowid in found.fetchall():
        columns, keys = [], []
        for row in connection.execute(f"PRAGMA table_info({sql_name(str(name))})"):
            column, declared, place_in_key = str(row[1]), str(row[2] or ""), row[5]
            columns.append(Cells(column, words_of(column), declared, Counter()))
            keys += columns[-1:] if place_in_key else []
        taken = {each.name.lower() for each in columns}
        rowid = next((one for one in ROWIDS if not without_rowid and one not in taken), None)
        table = RawTable(str(name), words_of(str(name)), keys, rowid, 0, columns)
        _count_types(table, connection)
        _sample(table, connection, rng)
        first = {each.words[0] if len(each.words) > 1 else "" for each in columns}
        if len(columns) > 2 and len(first) == 1 and first != {""}:  # `c_name`, `c_phone`, `c_city`
            for each in columns:
                each.words = each.words[1:]
        yield table


def _count_types(table: RawTable, connection: apsw.Connection) -> None:
    """Count rows, and the storage classes of each column's cells, over the whole table."""
    tests = [f"sum(typeof({each.sql}) = '{one}')" for each in table.columns for one in CLASSES]
    query = f"SELECT {', '.join(['count(*)', *tests])} FROM {table.sql}"
    ((table.count, *counts),) = cast(list[Any], connection.execute(query).fetchall())
    numbers = iter(counts)
    for each in table.columns:
        each.counts = Counter({one: next(numbers) or 0 for one in CLASSES})


def _sample(table: RawTable, connection: apsw.Connection, rng: random.Random) -> None:
    """Read all rows of a small table, or some drawn over the whole of a large one."""
    readable = [each for each in table.columns if not each.counts["blob"]]
    try:
        rows = _rows(table, readable, connection, rng)
    except UnicodeDecodeError:  # find the columns that are not UTF-8
        readable = [each for each in readable if _decodes(table, each, connection)]
        rows = _rows(table, readable, connection, rng)
    for at, each in enumerate(readable):
        each.sample = [row[at] for row in rows]


def _rows(
    table: RawTable, columns: Sequence[Cells], connection: apsw.Connection, rng: random.Random
) -> list[tuple[Any, ...]]:
    if not columns:
        return []
    names = ", ".join(each.sql for each in columns)
    select = f"SELECT {names} FROM {table.sql}"
    if table.count <= MAX_SAMPLE or not table.rowid:
        return list(islice(connection.execute(select), MAX_SAMPLE))
    rowid = table.rowid
    edges: list[Any] = list(
        connection.execute(f"SELECT min({rowid}), max({rowid}) FROM {table.sql}")
    )
    low, high = edges[0]
    ids = range(low, high + 1, 1 + (high - low) // sys.maxsize)  # `sample` needs len(ids)
    starts = sorted(rng.sample(ids, min(2 * MAX_SAMPLE, len(ids))))
    first = f"WHERE {rowid} >= ? ORDER BY {rowid} LIMIT 1"
    seek = f"SELECT {rowid}, {names} FROM {table.sql} {first}"
    found = {row[0]: row[1:] for at in starts for row in connection.execute(seek, (at,))}
    if len(found) < MIN_SAMPLE:  # a few far ids leave gaps that most starts fall into
        return list(islice(connection.execute(select), MAX_SAMPLE))
    return [found[at] for at in sorted(rng.sample(sorted(found), min(len(found), MAX_SAMPLE)))]


def _decodes(table: RawTable, column: Cells, connection: apsw.Connection) -> bool:
    try:
        for _ in connection.execute(f"SELECT {column.sql} FROM {table.sql}"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _split_compounds(tables: Sequence[RawTable]) -> None:
    """Split words such as `dormid` and `countrylanguage` where the schema has both parts."""
    columns = [each for table in tables for each in table.columns]
    named: list[RawTable | Cells] = [*tables, *columns]
    known = {word for one in named for word in one.words if len(word) > 3} | {"id"}

    def parts(word: str) -> list[str]:
        cuts = [(word[:at], word[at:]) for at in range(4, len(word) - 1)]
        return list(next((cut for cut in cuts if known.issuperset(cut)), (word,)))

    for one in named:
        one.words = [part for word in one.words for part in parts(word)]


def _name_tables(tables: Sequence[RawTable]) -> None:
    cores = [core_of(table.words) for table in tables]
    short = [nouns_of(core) for core in cores]
    for table, nouns, core in zip(tables, short, cores, strict=True):
        if short.count(nouns) > 1:
            nouns = nouns_of(table.words)
            if core != table.words or [nouns_of(t.words) for t in tables].count(nouns) > 1:
                nouns = record_nouns(table.name)
        own = [singular(word) for word in core]
        ids = [each for each in table.columns if each.words[:-1] == own and each.words[-1] in IDS]
        if ids and all(map(_repeats, ids)) and len(table.keys) != 1:
            nouns = record_nouns(table.name)  # a row is an item of an order, not an order
        table.singular, table.plural = nouns


def _repeats(column: Cells) -> bool:
    return len(set(column.known)) < len(column.known)


class _Link(NamedTuple):
    """A possible reference from a child's column to a parent's."""

    child: RawTable
    column: Cells
    parent: RawTable
    key: Cells


def _link(tables: Sequence[RawTable], connection: apsw.Connection) -> None:
    """Find each table's key and references: the declared ones, and those that are certain."""
    links = [link for table in tables for link in _declared(table, tables, connection)]
    for table in tables:
        table.foreign = {link.column for link in links if link.child is table}
    for table in tables:
        for each in table.columns:
            if each not in table.foreign:
                links += _undeclared(table, each, tables, connection)
    for parent in tables:
        keys = Counter(link.key for link in links if link.parent is parent)
        ordered = sorted(keys, key=lambda key: (parent.keys != [key], -keys[key], key.name.lower()))
        for key in ordered:
            count = f"SELECT count(DISTINCT {key.sql}) FROM {parent.sql}"
            if parent.keys == [key] or connection.execute(count).fetchall() == [(parent.count,)]:
                parent.key = key
                break
    for link in links:
        new = link.child is not link.parent and link.column not in link.child.refs
        if new and link.parent.key == link.key and _matches(link, connection):
            link.child.refs[link.column] = link.parent


def _declared(
    table: RawTable, tables: Sequence[RawTable], connection: apsw.Connection
) -> Iterator[_Link]:
    listed = connection.execute(f"PRAGMA foreign_key_list({table.sql})").fetchall()
    composite = {row[0] for row in listed if row[1] != 0}
    for row in listed:
        name, column = str(row[2]).lower(), table.column(str(row[3]))
        parent = next((one for one in tables if one.name.lower() == name), None)
        if parent is None or row[0] in composite:
            continue
        only = parent.keys[0] if len(parent.keys) == 1 else None
        key = parent.column(str(row[4])) if row[4] else only
        # without a sample, it holds BLOBs or text that is not UTF-8
        if column and column.sample and key and key.sample:
            yield _Link(table, column, parent, key)


def _undeclared(
    table: RawTable, each: Cells, tables: Sequence[RawTable], connection: apsw.Connection
) -> list[_Link]:
    """Return the reference that a column must be by its name and all of its values, if any."""
    if table.keys == [each] or not each.known:
        return []
    links = []
    for parent in tables:
        key = parent.keys[0] if len(parent.keys) == 1 else None
        if parent is table or key is None or not key.sample:
            continue
        words = max(words_of(key.name), key.words, key=len)  # of `ArtistId` or `artistid`
        own = [singular(word) for word in core_of(parent.words)]
        same = each.name.lower() == key.name.lower() and len(words) > 1 and words[-1] == "id"
        named = each.words == [*own, "id"] and words in (["id"], [*own, "id"])
        # `airline` with numbers of airlines
        numbered = each.words == own and each.counts["integer"] and not each.counts["text"]
        if same or named or numbered:
            links.append(_Link(table, each, parent, key))
    if len(links) != 1:
        return []
    keys = f"SELECT {links[0].key.sql} FROM {links[0].parent.sql}"
    strays = f"SELECT 1 FROM {table.sql} WHERE {each.sql} NOT IN ({keys}) LIMIT 1"
    return [] if connection.execute(strays).fetchall() else links


def _matches(link: _Link, connection: apsw.Connection) -> bool:
    child = f"{link.child.sql}.{link.column.sql}"
    key = f"{link.parent.sql}.{link.key.sql}"
    join = f"{link.child.sql} LEFT JOIN {link.parent.sql} ON {child} = {key}"
    known = f"SELECT count(*), count({key}) FROM {join} WHERE {child} IS NOT NULL"
    ((count, found),) = cast(list[Any], connection.execute(known).fetchall())
    return bool(0 < found >= count / 2)
