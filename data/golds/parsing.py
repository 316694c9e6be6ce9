"""sqlglot's trees of SQLite queries, parsed once and shared."""

from functools import lru_cache
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError


class Unreadable(Exception):
    """A query that parses, with a part that can't be resolved here."""


@lru_cache(maxsize=4096)
def parse(sql: str) -> exp.Query:
    """The parsed query, which callers must not change. Raises sqlglot's errors."""
    tree = sqlglot.parse_one(sql, dialect="sqlite")
    if not isinstance(tree, exp.Query):
        raise SqlglotError(f"not a query but {tree.key}")
    return tree


def resolve_term(select: exp.Select, term: exp.Expression) -> exp.Expression:
    """What an ORDER BY or GROUP BY term stands for: an output column's number or alias is its
    expression.

    `Unreadable` for an alias inside an expression: a table's column of that name would come first.
    """
    if isinstance(term, exp.Literal) and not term.is_string:
        index = int(term.this) - 1
        if any(projection.is_star for projection in select.expressions) or not 0 <= index < len(
            select.expressions
        ):
            raise Unreadable(f"the number {term.this} for an output column")
        return cast(exp.Expression, select.expressions[index].unalias())
    aliases = {
        projection.alias.lower(): projection.this
        for projection in select.expressions
        if isinstance(projection, exp.Alias)
    }
    whole = term.this if isinstance(term, exp.Collate) else term
    for column in term.find_all(exp.Column):
        if column.table or column.name.lower() not in aliases:
            continue
        if column is not whole:
            raise Unreadable(
                f"the alias {column.name} inside an expression, where a table's column would come first"
            )
        meant = cast(exp.Expression, aliases[column.name.lower()].copy())
        return (
            meant if whole is term else exp.Collate(this=meant, expression=term.expression.copy())
        )
    return term.copy()
