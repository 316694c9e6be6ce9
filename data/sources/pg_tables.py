"""PostgreSQL's tables as SQLite's: their columns, keys and values."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import new_database
from shared.errors import DataError
from shared.sqltext import quote_identifier

Key = tuple[str, str]  # schema, table
Cells = Sequence[str | None]  # of a row, as PostgreSQL prints them
MAX_INTEGER_DIGITS = 18  # that SQLite's integers, of 64 bits, can hold

# sqlglot's name of a PostgreSQL type -> the type in SQLite; any other is TEXT
_TYPES = {
    **dict.fromkeys(("INT", "SMALLINT", "BIGINT", "SERIAL", "SMALLSERIAL", "BIGSERIAL"), "INTEGER"),
    **dict.fromkeys(("DECIMAL", "REAL", "FLOAT", "DOUBLE PRECISION"), "REAL"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), "TIMESTAMP"),
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "BYTEA": "BLOB",
}
_BOOLEANS = {"t": 1, "true": 1, "f": 0, "false": 0}
_HOUR_OFFSET = re.compile(r"(?<=:\d\d)(\.\d+)?([+-]\d\d)$")
_DOMAIN = re.compile(
    r"CREATE\s+DOMAIN\s+(\S+)\s+AS\s+(.+?)(?:\s+(?:COLLATE|CONSTRAINT|DEFAULT|NOT)\b.*)?$",
    re.I | re.S,
)
_ATTACH = re.compile(
    r"ALTER\s+TABLE\s+(?:ONLY\s+)?(.+?)\s+ATTACH\s+PARTITION\s+(.+?)\s+(?:FOR|DEFAULT)\b",
    re.I | re.S,
)
_TABLE = re.compile(r"CREATE\s+(?:UNLOGGED\s+)?TABLE\b", re.I)
_KEY = re.compile(r"ALTER\s+TABLE\b.*\b(?:PRIMARY|FOREIGN)\s+KEY\b", re.I | re.S)
_NOT_COPIED = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?P<kind>(?:MATERIALIZED\s+|RECURSIVE\s+)?VIEW|FOREIGN\s+TABLE)\s+"
    r"(?P<name>(?:\"[^\"]*\"|[^\s(\"])+)",
    re.I,
)


@dataclass
class PgTable:
    """A table: its columns with their types in SQLite and, for people, in PostgreSQL."""

    columns: dict[str, str]
    shown: dict[str, str]
    computed: list[str] = field(default_factory=list)  # columns whose values a dump does not have
    primary_key: list[str] = field(default_factory=list)
    foreign_keys: list[tuple[list[str], Key, list[str]]] = field(default_factory=list)
    rows: int = 0


class PgSchema:
    """The tables of a database, from its CREATE and ALTER statements."""

    def __init__(self) -> None:
        self.tables: dict[Key, PgTable] = {}
        self.parents: dict[Key, Key] = {}  # of partitions, whose rows go to the parent
        self.problems: list[str] = []
        self._domains: dict[str, str] = {}

    def add(self, statement: str) -> None:
        """Learn from a statement; one that is about neither tables nor keys is ignored."""
        if found := _NOT_COPIED.match(statement):
            self.problems.append(f"{found['kind'].lower()} {found['name']} is not copied")
        elif found := _DOMAIN.match(statement):
            self._domains[found[1].lower()] = found[2]
        elif found := _ATTACH.match(statement):
            self.parents[key_of(exp.to_table(found[2], dialect="postgres"))] = key_of(
                exp.to_table(found[1], dialect="postgres")
            )
        elif _TABLE.match(statement) or _KEY.match(statement):
            try:
                self._add_parsed(sqlglot.parse_one(statement, dialect="postgres"))
            except (SqlglotError, RecursionError, KeyError):
                first = " ".join(statement.split())[:100]
                self.problems.append(f"not understood, so its table or key is left out: {first}")

    def parent(self, key: Key) -> Key:
        """Return the table that the rows of `key` go to."""
        while key in self.parents:
            key = self.parents[key]
        return key

    def names(self) -> dict[Key, str]:
        """Return the name of each table in SQLite: with its schema where two have the same."""
        keys = [key for key in self.tables if key not in self.parents]
        plain = [table.lower() for _, table in keys]
        return {
            (schema, table): table if plain.count(table.lower()) == 1 else f"{schema}_{table}"
            for schema, table in keys
        }

    def _add_parsed(self, tree: exp.Expression) -> None:
        if isinstance(tree, exp.Create) and isinstance(tree.this, exp.Schema):
            properties = tree.args.get("properties")
            if properties and properties.find(exp.InheritsProperty):
                raise KeyError("the parent's columns")
            table = self.tables[key_of(tree.this.this)] = PgTable({}, {})
            for part in tree.this.expressions:
                if isinstance(part, exp.ColumnDef):
                    self._add_column(table, part)
                else:
                    _add_keys(table, part)
        elif isinstance(tree, exp.Alter):
            for action in tree.args["actions"]:
                _add_keys(self.tables[key_of(tree.this)], action)
        else:
            raise KeyError("no table")

    def _add_column(self, table: PgTable, column: exp.ColumnDef) -> None:
        name = _name(column.this)
        kind = column.args["kind"]
        constraints = [one.kind for one in column.args.get("constraints") or []]
        if any(isinstance(one, exp.ComputedColumnConstraint) for one in constraints):
            table.computed.append(name)
            return
        if any(isinstance(one, exp.PrimaryKeyColumnConstraint) for one in constraints):
            table.primary_key.append(name)
        for one in constraints:
            if isinstance(one, exp.Reference):
                table.foreign_keys.append(([name], *target_of(one)))
        shown = str(kind.sql(dialect="postgres"))
        if domain := self._domains.get(shown.lower()):
            kind = exp.DataType.build(domain, dialect="postgres")
        table.columns[name] = sqlite_type(kind)
        table.shown[name] = shown


def sqlite_type(kind: exp.DataType) -> str:
    """Return the type in SQLite for a type in PostgreSQL."""
    text = str(kind.sql(dialect="postgres"))
    name, _, size = text.partition("(")
    if name == "DECIMAL" and (digits := re.fullmatch(r"(\d+)(?:, 0)?\)", size)):
        return "INTEGER" if int(digits[1]) <= MAX_INTEGER_DIGITS else "NUMERIC"
    return "TEXT" if text.endswith("]") else _TYPES.get(name, "TEXT")


def value_of(text: str | None, kind: str) -> Any:
    """Return a cell as SQLite's value, for a column of the type `kind` in SQLite."""
    if text is None:
        return None
    match kind:
        case "INTEGER":
            return int(text)
        case "NUMERIC" if text != "NaN" and -(2**63) <= int(text) < 2**63:
            return int(text)
        case "REAL" | "NUMERIC":
            return float(text)  # NaN becomes NULL
        case "BOOLEAN":
            return _BOOLEANS[text.lower()]
        case "BLOB":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "TIMESTAMP":  # SQLite's functions read +02:00, and not +02
            return _HOUR_OFFSET.sub(r"\1\2:00", text)
    return text


def write_tables(
    schema: PgSchema,
    data: Iterable[tuple[Key, Sequence[str], Iterable[Cells]]],
    target: Path,
    report: ImportReport,
) -> None:
    """Write the database `target`: `data` are tables, columns and rows, in any order.

    Lists the tables in `report`. Raises `DataError`.
    """
    names = schema.names()
    if not names:
        raise DataError(f"{report.path} has no table: name a plain dump that pg_dump wrote")
    _keep_keys_exact(schema)
    with new_database(target) as connection:
        for key, name in names.items():
            try:
                connection.execute(_create(schema.tables[key], name, names))
            except apsw.Error as error:
                remedy = "rename it in PostgreSQL (SQLite ignores case), or dump without the table"
                raise DataError(f"SQLite cannot hold table {name}: {error}; {remedy}") from error
        for key, columns, rows in data:
            own = schema.parent(key)
            if own in names:
                _insert(connection, schema.tables[own], names[own], columns, rows)
        schema.problems += _rounded(connection, schema, names)
    report.problems += schema.problems
    for key, name in names.items():
        table = schema.tables[key]
        types = {
            column: kind if kind == table.shown[column] else f"{kind} ({table.shown[column]})"
            for column, kind in table.columns.items()
        }
        report.tables.append(ConvertedTable(name, table.rows, types))
        for column in table.computed:
            report.problems.append(f"{name}.{column} is computed by PostgreSQL: it is left out")


def _keep_keys_exact(schema: PgSchema) -> None:
    """Make the columns of keys text that could hold integers of more than 64 bits."""
    for table in schema.tables.values():
        keys = [(table, table.primary_key), *((table, own) for own, _, _ in table.foreign_keys)]
        for _, target, others in table.foreign_keys:
            keys += [(schema.tables[target], others)] if target in schema.tables else []
        for one, columns in keys:
            one.columns |= {name: "TEXT" for name in columns if one.columns.get(name) == "NUMERIC"}


def _rounded(connection: apsw.Connection, schema: PgSchema, names: dict[Key, str]) -> Iterator[str]:
    """Yield the columns of integers that have some of more than 64 bits."""
    for key, name in names.items():
        for column, kind in schema.tables[key].columns.items():
            real = f"typeof({quote_identifier(column)}) = 'real'"
            some = f"SELECT 1 FROM {quote_identifier(name)} WHERE {real} LIMIT 1"
            if kind == "NUMERIC" and connection.execute(some).fetchall():
                yield f"{name}.{column} has integers of more than 64 bits: they are rounded"


def _create(table: PgTable, name: str, names: dict[Key, str]) -> str:
    """Return the statement that creates a table in SQLite."""
    parts = [f"{quote_identifier(column)} {kind}" for column, kind in table.columns.items()]
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({_quoted(table.primary_key)})")
    for columns, target, others in table.foreign_keys:
        if target in names:
            other = f" ({_quoted(others)})" if others else ""
            reference = f"REFERENCES {quote_identifier(names[target])}{other}"
            parts.append(f"FOREIGN KEY ({_quoted(columns)}) {reference}")
    return f"CREATE TABLE {quote_identifier(name)} ({', '.join(parts)})"


def _insert(
    connection: apsw.Connection,
    table: PgTable,
    name: str,
    columns: Sequence[str],
    rows: Iterable[Cells],
) -> None:
    columns = columns or list(table.columns)
    if unknown := [column for column in columns if column not in table.columns]:
        raise DataError(f"the rows of {name} have a column {unknown[0]!r} that it does not have")
    kinds = [table.columns[column] for column in columns]

    def values() -> Iterator[list[Any]]:
        for row in rows:
            table.rows += 1
            with _named(f"row {table.rows} of {name}"):
                yield [value_of(cell, kind) for cell, kind in zip(row, kinds, strict=True)]

    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {quote_identifier(name)} ({_quoted(columns)}) VALUES ({marks})"
    connection.executemany(sql, values())


@contextmanager
def _named(place: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, OverflowError) as error:
        raise DataError(f"{place} does not fit the column types: {error}") from error


def _add_keys(table: PgTable, part: exp.Expression) -> None:
    for key in part.find_all(exp.PrimaryKey):
        table.primary_key = column_names(key.expressions)
    for key in part.find_all(exp.ForeignKey):
        columns = column_names(key.expressions)
        table.foreign_keys.append((columns, *target_of(key.args["reference"])))


def target_of(statement: exp.Reference | exp.Insert) -> tuple[Key, list[str]]:
    """Return the table and the columns that a foreign key or an INSERT names; no columns are all
    of them."""
    this = statement.this
    if isinstance(this, exp.Schema):
        return key_of(this.this), column_names(this.expressions)
    return key_of(this), []


def key_of(table: exp.Expression) -> Key:
    """Return the schema and the name of a table in a statement."""
    schema = table.args.get("db")
    return (_name(schema) if schema else "public"), _name(table.this)


def _name(node: exp.Expression) -> str:
    """Return a name as PostgreSQL knows it: in lower case, unless quoted."""
    found = node if isinstance(node, exp.Identifier) else node.find(exp.Identifier)
    if found is None:
        return str(node.name)
    return str(found.name) if found.args.get("quoted") else str(found.name).lower()


def column_names(nodes: Iterable[exp.Expression]) -> list[str]:
    """Return the names of columns in a statement."""
    return [_name(node) for node in nodes]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(quote_identifier, names))
