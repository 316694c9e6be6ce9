"""Which column of which table a name in a query means."""

import apsw
from sqlglot import exp


def table_of(column: exp.Column, connection: apsw.Connection) -> str | None:
    """Return the table that a column is of; None if it is none's, of a subquery or a WITH table."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        for source in [
            select.args.get("from") or select.args.get("from_"),
            *(select.args.get("joins") or []),
        ]:
            table = source and source.this
            if not isinstance(table, exp.Table):
                continue
            named = not column.table or column.table.lower() == str(table.alias_or_name).lower()
            if named and _has(connection, table.name, column.name):
                return str(table.name)
        select = select.find_ancestor(exp.Select)
    return None


def _has(connection: apsw.Connection, table: str, column: str) -> bool:
    sql = "SELECT 1 FROM pragma_table_info(?) WHERE name = ? COLLATE NOCASE"
    return bool(connection.execute(sql, (table, column)).fetchall())
