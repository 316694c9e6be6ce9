"""Copy a PostgreSQL database, named by its URL, into a SQLite file, and ask it for answers."""

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import new_database
from data.sources.table_files import free_name
from shared.errors import DataError
from shared.sqltext import quote_identifier

Row = tuple[Any, ...]

SCHEMES = ("postgres", "postgresql")
CONNECT_TIMEOUT_S = 15
MAX_ANSWER_ROWS, ANSWER_TIMEOUT_S = 1_000, 30  # more than any gold may have
MAX_INTEGER_DIGITS = 18  # that SQLite's integers, of 64 bits, can hold
# formats that do not depend on the server's settings
SETTINGS = {
    "TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres", "bytea_output": "hex",
}  # fmt: skip
# PostgreSQL's type -> the type in SQLite; any other is TEXT
TYPES = {
    **dict.fromkeys(("smallint", "integer", "bigint"), "INTEGER"),
    **dict.fromkeys(("numeric", "real", "double precision"), "REAL"),
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "bytea": "BLOB",
}
_OWN = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
_TABLES = f"""
    SELECT c.oid, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND {_OWN} ORDER BY 2, 3
"""
_COLUMNS = """
    SELECT a.attname, CASE WHEN t.typbasetype = 0 THEN format_type(a.atttypid, a.atttypmod)
                           ELSE format_type(t.typbasetype, t.typtypmod) END
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_NAMED = """
    (SELECT array_agg(a.attname::text ORDER BY k.place)
     FROM unnest({key}) WITH ORDINALITY k(number, place)
     JOIN pg_attribute a ON a.attrelid = {table} AND a.attnum = k.number)
"""
_KEYS = f"""
    SELECT contype = 'p', {_NAMED.format(key="conkey", table="conrelid")}, confrelid,
           {_NAMED.format(key="confkey", table="confrelid")}
    FROM pg_constraint WHERE conrelid = %s AND contype IN ('p', 'f') ORDER BY contype DESC, conname
"""


@dataclass
class _Table:
    """A table: its columns with their types in SQLite, and its keys."""

    schema: str
    name: str
    columns: dict[str, str]
    primary_key: list[str] = field(default_factory=list)
    foreign_keys: list[tuple[list[str], int, list[str]]] = field(default_factory=list)


def shown(source: str) -> str:
    """Return a URL without a password, for reports and messages."""
    url = urlsplit(source)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


def database_name(source: str) -> str:
    """Return the name of a URL's database. Raises `DataError` for a malformed URL, without
    repeating it: it may hold a password."""
    if source.partition("://")[0].lower() not in SCHEMES:
        remedy = "restore a dump with psql or pg_restore, and name its database: postgresql:///NAME"
        raise DataError(f"{source} is no URL of a PostgreSQL database: {remedy}")
    try:
        path = unquote(urlsplit(source).path).strip("/")
    except ValueError as error:
        raise DataError("malformed URL: expected postgresql://USER@HOST/DATABASE") from error
    return Path(path).name or "postgres"


def write_postgres(
    source: str, target: Path, report: ImportReport, golds: Iterable[str] = ()
) -> tuple[dict[tuple[str, str], str], dict[str, list[Row]]]:
    """Write the SQLite file `target`, and list its tables in `report`.

    Return the new names of tables by schema and name, and the rows that PostgreSQL answers to each
    of the `golds` that it runs. Raises `DataError`.
    """
    try:
        import psycopg
    except ImportError as error:
        remedy = "pip install 'psycopg[binary]'"
        raise DataError(f"reading a URL needs the package psycopg: {remedy}") from error
    try:
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        with psycopg.connect(
            source, client_encoding="utf8", connect_timeout=CONNECT_TIMEOUT_S, options=options
        ) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one moment's rows
            tables = _read_tables(connection, report)
            if not tables:
                raise DataError(f"{report.path} has no table")
            names = _copy(connection, tables, target, report)
            answers = {}
            for gold in golds:
                with suppress(psycopg.Error), connection.transaction():
                    answers[gold] = _answer(connection, gold)
            return names, answers
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot copy {shown(source)}: {reason}; check the URL") from error


def _answer(connection: Any, gold: str) -> list[Row]:
    """Return the first rows of a query, as SQLite would hold them."""
    connection.execute(f"SET LOCAL statement_timeout = {1_000 * ANSWER_TIMEOUT_S}")
    inner = f"SELECT * FROM ({gold}) AS gold"
    columns = connection.execute(f"{inner} LIMIT 0").description
    named = "SELECT format_type(%s, NULL)"
    types = [connection.execute(named, [column.type_code]).fetchone()[0] for column in columns]
    kinds = list(map(sqlite_type, types))
    with connection.cursor().copy(f"COPY ({inner} LIMIT {MAX_ANSWER_ROWS}) TO STDOUT") as rows:
        return [tuple(map(value_of, row, kinds)) for row in rows.rows()]


def _read_tables(connection: Any, report: ImportReport) -> dict[int, _Table]:
    """Return the tables by their oid."""
    tables: dict[int, _Table] = {}
    for oid, schema, name in connection.execute(_TABLES).fetchall():
        columns = {one: sqlite_type(kind) for one, kind in connection.execute(_COLUMNS, [oid])}
        if not columns:
            report.notes.append(f"{schema}.{name} has no column, and is left out")
            continue
        table = tables[oid] = _Table(schema, name, columns)
        for primary, own, other, others in connection.execute(_KEYS, [oid]).fetchall():
            if primary:
                table.primary_key = own
            else:
                table.foreign_keys.append((own, other, others))
    return tables


def sqlite_type(kind: str) -> str:
    """Return the type in SQLite for a type as PostgreSQL's `format_type` writes it."""
    if digits := re.fullmatch(r"numeric\((\d+),0\)", kind):
        return "INTEGER" if int(digits[1]) <= MAX_INTEGER_DIGITS else "NUMERIC"
    if kind.endswith("]"):
        return "TEXT"
    return TYPES.get(re.sub(r"\(.*|( with(out)? time zone)$", "", kind).strip(), "TEXT")


def value_of(text: str | None, kind: str) -> Any:
    """Return a cell, as COPY writes it, as SQLite's value for a column of the type `kind`."""
    if text is None:
        return None
    match kind:
        case "INTEGER" | "NUMERIC" if text != "NaN" and -(2**63) <= int(text) < 2**63:
            return int(text)
        case "REAL" | "NUMERIC":
            return float(text)  # NaN becomes NULL
        case "BOOLEAN":
            return int(text == "t")
        case "BLOB":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "TIMESTAMP":
            return text.removesuffix("+00")  # of UTC, as SETTINGS has it
    return text


def _copy(
    connection: Any, tables: dict[int, _Table], target: Path, report: ImportReport
) -> dict[tuple[str, str], str]:
    names = _names(tables, report)
    with new_database(target) as database:
        for oid, table in tables.items():
            try:
                database.execute(_create(table, names[oid], names))
            except apsw.Error as error:
                remedy = "rename it in PostgreSQL (SQLite ignores case)"
                raise DataError(f"SQLite cannot hold {names[oid]}: {error}; {remedy}") from error
        for oid, table in tables.items():
            source = f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
            kinds, name = list(table.columns.values()), quote_identifier(names[oid])
            insert = f"INSERT INTO {name} VALUES ({', '.join('?' * len(kinds))})"
            query = f"COPY (SELECT {_quoted(table.columns)} FROM {source}) TO STDOUT"
            with connection.cursor().copy(query) as rows:
                database.executemany(
                    insert, (tuple(map(value_of, row, kinds)) for row in rows.rows())
                )
            count: Any = database.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]
            report.tables.append(ConvertedTable(names[oid], count, table.columns))
    renamed = {(table.schema, table.name): names[oid] for oid, table in tables.items()}
    return renamed | {("", name): new for (of, name), new in renamed.items() if of == "public"}


def _names(tables: dict[int, _Table], report: ImportReport) -> dict[int, str]:
    """Return the tables' names in SQLite, which ignores case: of two, with the schema."""
    plain = Counter(table.name.lower() for table in tables.values())
    names: dict[int, str] = {}
    taken: set[str] = set()
    for oid, table in tables.items():
        base = table.name if plain[table.name.lower()] == 1 else f"{table.schema}_{table.name}"
        names[oid] = name = free_name(base, taken)
        if name != table.name:
            report.notes.append(f"{table.schema}.{table.name} is called {name}")
    return names


def _create(table: _Table, name: str, names: dict[int, str]) -> str:
    parts = [f"{quote_identifier(column)} {kind}" for column, kind in table.columns.items()]
    if table.primary_key:
        parts.append(f"PRIMARY KEY ({_quoted(table.primary_key)})")
    for own, target, others in table.foreign_keys:
        if target in names:
            reference = f"REFERENCES {quote_identifier(names[target])} ({_quoted(others)})"
            parts.append(f"FOREIGN KEY ({_quoted(own)}) {reference}")
    return f"CREATE TABLE {quote_identifier(name)} ({', '.join(parts)})"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(quote_identifier, names))
