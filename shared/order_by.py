"""Where ORDER BY and LIMIT leave an answer open: rows with equal sort keys may come in any order.

`tie_query` rewrites a query so that its rows show their sort keys and none is cut off: the server
accepts every answer that a tie allows, the data tools reject such golds. Needs sqlglot.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from sqlglot import exp
from sqlglot.errors import SqlglotError

from shared.sql_parser import parse_sql

Row = tuple[Any, ...]


class Unresolved(Exception):
    """A query that parses, but whose sort keys or limits cannot be determined from its text."""


@dataclass(frozen=True, slots=True)
class TieQuery:
    """A query whose rows show their sort keys; rows `start` to `stop` are the original's answer."""

    sql: str  # the original without LIMIT and OFFSET, and with further columns
    hidden: int  # the number of these: the sort keys that the original does not show
    keys: tuple[int, ...]  # the index of each sort key in a row
    start: int
    stop: int | None  # None without a limit
    distinct: bool = False  # a SELECT DISTINCT with hidden keys, which repeats a row with several

    @property
    def is_original(self) -> bool:
        """Whether `sql` returns exactly the original's rows."""
        return not self.hidden and self.start == 0 and self.stop is None

    def split(self, row: Row) -> tuple[Row, Row]:
        """Return `(visible cells, sort keys)` of a row of `sql`."""
        return row[: len(row) - self.hidden], tuple(row[key] for key in self.keys)


@lru_cache(maxsize=4096)
def parse_query(sql: str) -> exp.Query:
    """Parse a SQLite query. The tree is shared: do not change it. Raises `SqlglotError`."""
    tree = parse_sql(sql)
    if not isinstance(tree, exp.Query):
        raise SqlglotError(f"not a query but {tree.key}")
    return tree


def tie_query(query: exp.Query) -> TieQuery | None:
    """Rewrite a query to show its sort keys; None if it has neither ORDER BY nor a limit.

    Raises `Unresolved` if a limit is not a plain number or a sort key cannot be added as a column.
    """
    order, (start, stop) = query.args.get("order"), _window(query)
    if order is None and start == 0 and stop is None:
        return None
    whole = query.copy()
    whole.set("limit", None)
    whole.set("offset", None)
    terms = [ordered.this for ordered in order.expressions] if order else []
    places = [_output_index(query, term) for term in terms]
    hidden = [term for term, place in zip(terms, places, strict=True) if place is None]
    if hidden and not isinstance(query, exp.Select):
        raise Unresolved(f"{hidden[0].sql(dialect='sqlite')} is not an output column")
    for number, term in enumerate(hidden):
        key = resolve_term(cast(exp.Select, query), term)
        whole.append("expressions", exp.alias_(key, f"sort_key_{number}"))
    last = iter(range(-len(hidden), 0))
    keys = tuple(next(last) if place is None else place for place in places)
    distinct = bool(hidden and query.args.get("distinct"))
    return TieQuery(whole.sql(dialect="sqlite"), len(hidden), keys, start, stop, distinct)


def resolve_term(select: exp.Select, term: exp.Expression) -> exp.Expression:
    """Return the expression that an ORDER BY or GROUP BY term stands for, by number or alias.

    Raises `Unresolved` for an alias inside an expression: a column of that name takes precedence.
    """
    if isinstance(term, exp.Literal) and not term.is_string:
        index = _whole_number(term) - 1
        starred = any(column.is_star for column in select.expressions)
        if starred or not 0 <= index < len(select.expressions):
            raise Unresolved(f"the number {term.this} for an output column")
        return cast(exp.Expression, select.expressions[index].unalias())
    named = [column for column in select.expressions if isinstance(column, exp.Alias)]
    aliases = {column.alias.lower(): column.this for column in named}
    whole = _without_collation(term)
    for column in term.find_all(exp.Column):
        if column.table or column.name.lower() not in aliases:
            continue
        if column is not whole:
            raise Unresolved(f"the alias {column.name} inside an expression")
        meant = cast(exp.Expression, aliases[column.name.lower()].copy())
        if whole is term:
            return meant
        return exp.Collate(this=meant, expression=term.expression.copy())
    return term.copy()


def _window(query: exp.Query) -> tuple[int, int | None]:
    """Return the `(start, stop)` row indices that LIMIT and OFFSET select; stop None: no limit."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    start = max(_whole_number(offset.expression), 0) if offset else 0
    count = _whole_number(limit.expression) if limit else -1
    return start, None if count < 0 else start + count


def _whole_number(node: exp.Expression) -> int:
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if not (isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()):
        raise Unresolved(f"{node.sql(dialect='sqlite')} is not a plain number")
    return sign * int(node.this)


def _output_index(query: exp.Query, term: exp.Expression) -> int | None:
    """Return the index of the output column that an ORDER BY term names or repeats, or None."""
    term = _without_collation(term)
    if isinstance(term, exp.Literal) and not term.is_string:
        return _whole_number(term) - 1
    name = term.name.lower() if isinstance(term, exp.Column) and not term.table else None
    for branch in _branches(query):
        columns = branch.selects
        if any(column.is_star for column in columns):
            return None
        for index, column in enumerate(columns):  # an alias takes precedence over a column's name
            if name is not None and column.alias.lower() == name:
                return index
        for index, column in enumerate(columns):
            named = name is not None and isinstance(column, exp.Column)
            if column.unalias() == term or (named and column.name.lower() == name):
                return index
    return None


def _branches(query: exp.Query) -> list[exp.Query]:
    """Return the SELECTs of UNION, INTERSECT and EXCEPT from left to right, else the query."""
    if isinstance(query, exp.SetOperation):
        return [*_branches(query.left), *_branches(query.right)]
    return [query]


def _without_collation(term: exp.Expression) -> exp.Expression:
    return cast(exp.Expression, term.this) if isinstance(term, exp.Collate) else term
