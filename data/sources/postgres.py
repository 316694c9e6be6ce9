"""Copy a PostgreSQL database, named by its URL, into a SQLite file."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import apsw

from data.sources.report import ConvertedTable, ImportReport
from data.sources.sqlite_files import new_database
from shared.errors import DataError
from shared.sqltext import quote_identifier, sql_name

SCHEMES = ("postgres", "postgresql")
CONNECT_TIMEOUT_S = 15
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
    SELECT c.oid, n.nspname, c.relname, has_table_privilege(c.oid, 'SELECT')
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
_NOT_COPIED = f"""
    SELECT CASE c.relkind WHEN 'f' THEN 'foreign table' ELSE 'view' END, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('v', 'm', 'f') AND {_OWN} ORDER BY 2, 3
"""
_HOUR_OFFSET = re.compile(r"(?<=:\d\d)(\.\d+)?([+-]\d\d)$")


@dataclass
class PgTable:
    """A table: its columns with their types in SQLite and, for people, in PostgreSQL."""

    schema: str
    name: str
    columns: dict[str, str]
    shown: dict[str, str]
    primary_key: list[str] = field(default_factory=list)
    foreign_keys: list[tuple[list[str], int, list[str]]] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The name in PostgreSQL's SQL."""
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"


def is_url(source: str) -> bool:
    return source.partition("://")[0].lower() in SCHEMES


def check_url(source: str) -> None:
    """Raise `DataError` for anything but a URL, such as a dump, and say how to restore it."""
    if not is_url(source):
        name = re.sub(r"\W", "_", Path(source).stem) or "mine"
        restore = f"createdb {name} && psql {name} --file={shlex.quote(source)}"
        raise DataError(
            f"{source} is no URL of a PostgreSQL database. Restore a dump ({restore}; pg_restore "
            f"for other formats), and import the database: postgresql:///{name}"
        )


def shown(source: str) -> str:
    """Return a URL without a password, for reports and messages."""
    url = urlsplit(source)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


def database_name(source: str) -> str:
    """Return the name of a URL's database.

    Raises `DataError` for a malformed URL, without repeating it: it may hold a password.
    """
    check_url(source)
    try:
        path = unquote(urlsplit(source).path).strip("/")
    except ValueError as error:
        raise DataError("malformed URL: expected postgresql://USER@HOST/DATABASE") from error
    return Path(path).name or "postgres"


def write_postgres(source: str, target: Path, report: ImportReport) -> None:
    """Write the SQLite file `target`, and list its tables in `report`. Raises `DataError`."""
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
            tables = read_tables(connection, report)
            if not tables:
                raise DataError(f"{report.path} has no table that may be read")
            _copy(connection, tables, target, report)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot copy {shown(source)}: {reason}; check the URL") from error


def read_tables(connection: Any, report: ImportReport) -> dict[int, PgTable]:
    """Return the tables that may be read, by their oid; report what is not copied."""
    tables: dict[int, PgTable] = {}
    for oid, schema, name, readable in connection.execute(_TABLES).fetchall():
        if not readable:
            report.problems.append(f"no permission to read {schema}.{name}: not copied")
            continue
        types = dict(connection.execute(_COLUMNS, [oid]).fetchall())
        columns = {column: sqlite_type(kind) for column, kind in types.items()}
        table = tables[oid] = PgTable(schema, name, columns, types)
        for primary, own, other, others in connection.execute(_KEYS, [oid]).fetchall():
            if primary:
                table.primary_key = own
            else:
                table.foreign_keys.append((own, other, others))
    for kind, *key in connection.execute(_NOT_COPIED).fetchall():
        report.problems.append(f"{kind} {'.'.join(map(sql_name, key))} is not copied")
    _keep_keys_exact(tables)
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
        case "INTEGER":
            return int(text)
        case "NUMERIC" if text != "NaN" and -(2**63) <= int(text) < 2**63:
            return int(text)
        case "REAL" | "NUMERIC":
            return float(text)  # NaN becomes NULL
        case "BOOLEAN":
            return int(text == "t")
        case "BLOB":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "TIMESTAMP":  # SQLite's functions read +02:00, and not +02
            return _HOUR_OFFSET.sub(r"\1\2:00", text)
    return text


def _keep_keys_exact(tables: dict[int, PgTable]) -> None:
    """Make the columns of keys text that could hold integers of more than 64 bits."""
    for table in tables.values():
        keys = [(table, table.primary_key), *((table, own) for own, _, _ in table.foreign_keys)]
        for _, target, others in table.foreign_keys:
            keys += [(tables[target], others)] if target in tables else []
        for one, columns in keys:
            one.columns |= {name: "TEXT" for name in columns if one.columns.get(name) == "NUMERIC"}


def _copy(connection: Any, tables: dict[int, PgTable], target: Path, report: ImportReport) -> None:
    names = _names(tables)
    with new_database(target) as database:
        for oid, table in tables.items():
            try:
                database.execute(_create(table, names[oid], names))
            except apsw.Error as error:
                remedy = "rename it in PostgreSQL (SQLite ignores case)"
                raise DataError(f"SQLite cannot hold {names[oid]}: {error}; {remedy}") from error
        for oid, table in tables.items():
            query = f"COPY (SELECT {_quoted(table.columns)} FROM {table.source}) TO STDOUT"
            kinds = list(table.columns.values())
            marks = ", ".join("?" * len(kinds))
            insert = f"INSERT INTO {quote_identifier(names[oid])} VALUES ({marks})"
            with connection.cursor().copy(query) as rows:
                database.executemany(insert, _values(rows.rows(), kinds))
            _report(database, table, names[oid], report)


def _values(rows: Iterable[Sequence[str | None]], kinds: Sequence[str]) -> Iterator[list[Any]]:
    for row in rows:
        yield [value_of(cell, kind) for cell, kind in zip(row, kinds, strict=True)]


def _report(database: apsw.Connection, table: PgTable, name: str, report: ImportReport) -> None:
    """List a table that was copied, and its columns of integers that had to be rounded."""
    quoted = quote_identifier(name)
    count = database.execute(f"SELECT count(*) FROM {quoted}").fetchall()[0][0]
    types = {column: f"{kind} ({table.shown[column]})" for column, kind in table.columns.items()}
    report.tables.append(ConvertedTable(name, int(str(count)), types))
    for column, kind in table.columns.items():
        real = f"SELECT 1 FROM {quoted} WHERE typeof({quote_identifier(column)}) = 'real' LIMIT 1"
        if kind == "NUMERIC" and database.execute(real).fetchall():
            what = "has integers of more than 64 bits: they are rounded"
            report.problems.append(f"{name}.{column} {what}")


def _names(tables: dict[int, PgTable]) -> dict[int, str]:
    """Return the name of each table in SQLite: with its schema where two have the same."""
    plain = [table.name.lower() for table in tables.values()]
    return {
        oid: table.name if plain.count(table.name.lower()) == 1 else f"{table.schema}_{table.name}"
        for oid, table in tables.items()
    }


def _create(table: PgTable, name: str, names: dict[int, str]) -> str:
    """Return the statement that creates a table in SQLite."""
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
