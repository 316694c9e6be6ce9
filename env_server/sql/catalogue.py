"""What DESCRIBE, on a trusted connection, and SAMPLE show: statements of this package, under the
same limits."""

from env_server.sql.connection import SqlConnection
from env_server.sql.jobs import SqlResult
from env_server.sql.run import run_query, tables_hint
from shared.sqltext import quote_identifier, quote_text

ALL = 10_000  # rows: more than a table can have columns

# 1: of a virtual table
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo({name}) WHERE hidden <> 1"
# A foreign key that names no column refers to the other table's primary key.
_REFERENCES = """
    SELECT k."from", k."table", coalesce(k."to", (
        SELECT c.name FROM pragma_table_info(k."table") c WHERE c.pk = k.seq + 1
    ), 'rowid') FROM pragma_foreign_key_list({name}) k ORDER BY k.id, k.seq
"""


def describe(connection: SqlConnection, table: str) -> SqlResult:
    """A table's columns, a row each: (name, declared type or "", 1 if in the primary key,
    "table.column" or None)."""
    name = quote_text(table)
    columns = run_query(connection, _COLUMNS.format(name=name), connection.policy, ALL)
    if columns.error is None and not columns.rows:
        return SqlResult(
            error=f"no such table: {table}; {tables_hint(connection.tables)}",
            error_code="no_such_table",
        )
    keys = run_query(connection, _REFERENCES.format(name=name), connection.policy, ALL)
    count = run_query(
        connection, f"SELECT count(*) FROM {quote_identifier(table)}", connection.policy, 1
    )
    for result in (columns, keys, count):
        if result.error is not None:
            return result
    references = {
        str(column).lower(): f"{parent!s}.{key!s}" for column, parent, key in reversed(keys.rows)
    }
    rows = [
        (column, kind, int(bool(pk)), references.get(str(column).lower()))
        for column, kind, pk in columns.rows
    ]
    return SqlResult(
        ["column", "type", "is_key", "references"],
        rows,  # type: ignore[arg-type]
        vm_steps=columns.vm_steps + keys.vm_steps + count.vm_steps,
        row_count=count.rows[0][0],  # type: ignore[arg-type]
    )


def sample(connection: SqlConnection, table: str) -> SqlResult:
    """A table's first rows in stored order."""
    # NOT INDEXED: a covering index has another order than the table.
    statement = f"SELECT * FROM {quote_identifier(table)} NOT INDEXED"
    result = run_query(connection, statement, connection.policy, connection.policy.sample_rows)
    result.truncated = False  # nobody asked for more
    return result
