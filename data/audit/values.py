"""Findings on how a gold uses its database's values: literals in another letter case, and
arithmetic over text.
"""

from collections.abc import Iterator

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.golds.columns import table_of
from shared.order_by import parse_query
from shared.sqltext import quote_identifier

_COMPARISONS = (exp.EQ, exp.NEQ, exp.In)
_ARITHMETIC = (exp.Sum, exp.Avg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)


def value_findings(sql: str, connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    """Yield `(flag, detail)` for each column of a table that `sql` uses in one of these ways:

    letter-case         it is compared, by =, <> or IN, with a text that it does not hold, while it
                        holds one that differs in (ASCII) letter case alone
    text-arithmetic     SUM, AVG or an operator takes it, and it holds text, of which SQLite uses
                        the leading number, or 0
    """
    try:
        query = parse_query(sql)
    except (SqlglotError, RecursionError):
        return
    found = dict.fromkeys(
        finding
        for node in query.walk()
        if isinstance(node, (*_COMPARISONS, *_ARITHMETIC))
        for finding in _findings(node, connection)
    )
    yield from found


def _findings(node: exp.Expression, connection: apsw.Connection) -> Iterator[tuple[str, str]]:
    columns, texts = [], []
    for operand in _operands(node):
        if isinstance(operand, exp.Literal) and operand.is_string:
            texts.append(str(operand.this))
        elif isinstance(operand, exp.Column):
            if (table := table_of(operand, connection)) is not None:
                columns.append((operand, table))
            elif operand.this.args.get("quoted") and not operand.table:
                texts.append(operand.name)  # SQLite reads an unknown "name" as a text
    for column, table in columns:
        name, shown = quote_identifier(column.name), f"{table}.{column.name}"
        if isinstance(node, _ARITHMETIC):
            if held := _cells(connection, table, f"typeof({name}) = 'text'", name):
                detail = f"{shown} holds text, such as {held[0][:40]!r}"
                yield "text-arithmetic", detail
            continue
        for text in texts:
            held = _cells(connection, table, f"lower({name}) = lower(?)", name, text)
            if held and not _cells(connection, table, f"{name} = ?", name, text):
                yield "letter-case", f"{shown} holds {held[0]!r}, not {text!r}"


def _operands(node: exp.Expression) -> Iterator[exp.Expression]:
    for child in (node.this, node.args.get("expression"), *node.expressions):
        if isinstance(child, exp.Distinct):
            yield from child.expressions
        elif child is not None:
            yield child.unnest()


def _cells(
    connection: apsw.Connection, table: str, condition: str, column: str, *bound: str
) -> list[str]:
    """Return the first cell of `column` under a condition, as a text, or nothing."""
    sql = f"SELECT {column} FROM {quote_identifier(table)} WHERE {condition} LIMIT 1"
    try:
        return [str(cell) for (cell,) in connection.execute(sql, bound)]
    except (apsw.Error, UnicodeDecodeError):  # a view that fails, text that is not UTF-8
        return []
