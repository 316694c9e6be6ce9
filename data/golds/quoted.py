"""Names of columns in golds: of which table they are, and what those in double quotes stand for.

SQLite reads a name in double quotes that no column has as text, without a word: max("yaer") is
'yaer'. And `role = "admin"` compares two columns if one is called Admin.
"""

import apsw
from sqlglot import exp

from shared.sqltext import quote_identifier

_HAS_COLUMN = "SELECT 1 FROM pragma_table_info(?) WHERE name = ? COLLATE NOCASE"
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Is)
_NAMING = (exp.Ordered, exp.Group, exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Count)


def table_of(column: exp.Column, connection: apsw.Connection) -> str | None:
    """Return the table that a column is of; None if it is none's, of a subquery or a WITH table."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        start = select.args.get("from") or select.args.get("from_")
        for source in [start, *(select.args.get("joins") or [])]:
            table = source and source.this
            if not isinstance(table, exp.Table):
                continue
            named = not column.table or column.table.lower() == str(table.alias_or_name).lower()
            if named and connection.execute(_HAS_COLUMN, (table.name, column.name)).fetchall():
                return str(table.name)
        select = select.find_ancestor(exp.Select)
    return None


def doubtful_name(query: exp.Query, connection: apsw.Connection) -> str | None:
    """Return a line about a name in double quotes that does not stand for what it seems to."""
    made = {one.alias.lower() for one in query.find_all(exp.Alias)}
    for alias in query.find_all(exp.TableAlias):
        made |= {name.lower() for name in alias.alias_column_names}

    def is_text(node: exp.Expression | None) -> bool:
        """Return whether SQLite reads a node as text: a string, or a name that no column has."""
        if not isinstance(node, exp.Column):
            return isinstance(node, exp.Literal)
        quoted = node.this.args.get("quoted") and not node.table
        return bool(quoted and node.name.lower() not in made and not table_of(node, connection))

    for column in query.find_all(exp.Column):
        if not column.this.args.get("quoted") or column.table:
            continue
        node = column.parent.parent if isinstance(column.parent, exp.Distinct) else column.parent
        sides = [node.this, node.expression] if isinstance(node, _COMPARED) else []
        other = next((one for one in sides if one is not column), None)
        if is_text(column):
            selected = isinstance(node, exp.Select) and column in node.expressions
            if selected or isinstance(node, _NAMING) or (sides and is_text(other)):
                return f'"{column.name}" is no column: SQLite reads it as text'
        elif isinstance(other, exp.Column) and column is sides[1]:
            table = table_of(other, connection)
            name = quote_identifier(other.name)
            held = table and f"SELECT 1 FROM {quote_identifier(table)} WHERE {name} = ? LIMIT 1"
            if held and connection.execute(held, (column.name,)).fetchall():
                what = f"a value of {other.name}, and a column: SQLite reads the column"
                return f'"{column.name}" is {what}; write it in single quotes'
    return None
