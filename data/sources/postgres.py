"""Copy a PostgreSQL database, from its URL or a plain dump, into a SQLite file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from data.sources.pg_dump import read_data, read_schema
from data.sources.pg_tables import Cells, Key, PgSchema, write_tables
from data.sources.report import ImportReport
from shared.errors import DataError
from shared.sqltext import quote_identifier, sql_name

SCHEMES = ("postgres", "postgresql")
CONNECT_TIMEOUT_S = 15
# formats that do not depend on the server's settings
SETTINGS = {
    "TimeZone": "UTC", "DateStyle": "ISO", "IntervalStyle": "postgres", "bytea_output": "hex",
}  # fmt: skip
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
_KEYS = """
    SELECT pg_get_constraintdef(oid) FROM pg_constraint
    WHERE conrelid = %s AND contype IN ('p', 'f') ORDER BY contype DESC, conname
"""
_NOT_COPIED = f"""
    SELECT CASE c.relkind WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'VIEW' END, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('v', 'm', 'f') AND {_OWN} ORDER BY 2, 3
"""


def is_url(source: str) -> bool:
    return source.partition("://")[0].lower() in SCHEMES


def shown(source: str) -> str:
    """Return a source without a password, for reports and messages."""
    if not is_url(source):
        return str(Path(source).resolve())
    url = urlsplit(source)
    return f"postgresql://{url.netloc.rpartition('@')[2]}{url.path}"


def database_name(source: str) -> str:
    """Return a name for the SQLite database: the URL's database, or the dump's file.

    Raises `DataError` for a malformed URL, without repeating it: it may hold a password.
    """
    try:
        path = unquote(urlsplit(source).path).strip("/") if is_url(source) else source
    except ValueError as error:
        raise DataError("malformed URL: expected postgresql://USER@HOST/DATABASE") from error
    return Path(path).stem or "postgres"


def write_postgres(source: str, target: Path, report: ImportReport) -> None:
    """Write the SQLite file `target`, and list its tables in `report`. Raises `DataError`."""
    if not is_url(source):
        path = Path(source)
        write_tables(read_schema(path), read_data(path), target, report)
        return
    try:
        import psycopg
    except ImportError as error:
        remedy = "pip install 'psycopg[binary]', or name a dump that pg_dump wrote"
        raise DataError(f"reading a URL needs the package psycopg: {remedy}") from error
    try:
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        with psycopg.connect(
            source, client_encoding="utf8", connect_timeout=CONNECT_TIMEOUT_S, options=options
        ) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ  # one moment's rows
            schema = _read_schema(connection)
            write_tables(schema, _read_data(connection, schema), target, report)
    except psycopg.Error as error:
        reason = " ".join(str(error).split())
        raise DataError(f"cannot copy {shown(source)}: {reason}; check the URL") from error


def _read_schema(connection: Any) -> PgSchema:
    """Return the tables that may be read, by the statements that a dump would hold."""
    schema = PgSchema()
    keys = []
    for oid, *key, readable in connection.execute(_TABLES).fetchall():
        name = ".".join(map(quote_identifier, key))
        if not readable:
            schema.problems.append(f"no permission to read {name}: not copied")
            continue
        columns = [
            f"{quote_identifier(column)} {kind}"
            for column, kind in connection.execute(_COLUMNS, [oid])
        ]
        schema.add(f"CREATE TABLE {name} ({', '.join(columns)})")
        keys += [f"ALTER TABLE {name} ADD {text}" for (text,) in connection.execute(_KEYS, [oid])]
    for statement in keys:
        schema.add(statement)
    for kind, *key in connection.execute(_NOT_COPIED):
        schema.add(f"CREATE {kind} {'.'.join(map(sql_name, key))}")
    return schema


def _read_data(
    connection: Any, schema: PgSchema
) -> Iterator[tuple[Key, Sequence[str], Iterator[Cells]]]:
    for key, table in schema.tables.items():
        columns = ", ".join(map(quote_identifier, table.columns))
        name = ".".join(map(quote_identifier, key))
        with connection.cursor().copy(f"COPY (SELECT {columns} FROM {name}) TO STDOUT") as copy:
            yield key, list(table.columns), copy.rows()
