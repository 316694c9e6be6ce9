"""Find bare columns: columns outside any aggregate and GROUP BY, whose value SQLite takes from an
arbitrary row.

`SELECT name, count(*) FROM person` shows an arbitrary name; `SELECT name, max(age) FROM person`
that of one of the oldest. Such a query has one answer only if all rows that the value may come from
agree, so those rows are read and compared.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from shared.order_by import Row, Unresolved, parse_query, resolve_term

# without one of these, a query shows nothing beside its aggregate
_BESIDE = re.compile(r",|\bgroup\b|\bhaving\b|\border\b", re.IGNORECASE)


def find_bare(sql: str, run: Callable[[str], Iterator[Row]]) -> str | None:
    """Return one line that names bare columns whose value is open; None if none are found."""
    if not _BESIDE.search(sql):
        return None
    try:
        selects = list(parse_query(sql).find_all(exp.Select))
    except SqlglotError:
        return None
    for select in selects:
        nodes = (node for column in select.expressions for node in own_nodes(column))
        if not select.args.get("group") and not any(map(_is_aggregate, nodes)):
            continue
        try:
            if found := _open_columns(select, run):
                return found
        except (apsw.SQLError, Unresolved):
            # correlated, or it reads a WITH table: the reversed scan, the next check, covers these
            continue
    return None


def _is_aggregate(node: exp.Expression) -> bool:
    # max(a, b) is a plain function
    scalar = isinstance(node, exp.Min | exp.Max) and node.expressions
    return isinstance(node, exp.AggFunc) and not scalar


def own_nodes(node: exp.Expression) -> Iterator[exp.Expression]:
    """Yield `node` and what is below it; subqueries are yielded but not entered."""
    below = node.walk(prune=lambda inner: isinstance(inner, exp.Query | exp.Subquery))
    return cast(Iterator[exp.Expression], below)


def _bare(node: exp.Expression, grouped: list[exp.Expression]) -> Iterator[exp.Column]:
    def ends(inner: exp.Expression) -> bool:
        subquery = isinstance(inner, exp.Query | exp.Subquery)
        return subquery or _is_aggregate(inner) or inner in grouped

    for below in node.walk(prune=ends):
        if isinstance(below, exp.Column) and below not in grouped:
            yield below


def _open_columns(select: exp.Select, run: Callable[[str], Iterator[Row]]) -> str | None:
    if select.find(exp.Window):
        return None
    grouping = select.args.get("group")
    group = [resolve_term(select, term) for term in grouping.expressions] if grouping else []
    # without GROUP BY the result is one row, so its order does not matter
    order = select.args.get("order") if group else None
    terms = [resolve_term(select, ordered.this) for ordered in order.expressions] if order else []
    having = [select.args["having"].this] if select.args.get("having") else []
    places = [*select.expressions, *terms, *having]
    bare = list(dict.fromkeys(column for place in places for column in _bare(place, group)))
    if not bare or any(column.is_star for column in bare):
        return None
    aggregates = (node for place in places for node in own_nodes(place) if _is_aggregate(node))
    extremes = {node for node in aggregates if isinstance(node, exp.Min | exp.Max)}
    extreme = extremes.pop() if len(extremes) == 1 else None
    shown = set(run(_regrouped(select, group, terms).sql(dialect="sqlite"))) if group else {()}
    columns = [*group, extreme.this if extreme else exp.null(), *bare]
    plain = select.copy()  # every row that `select` aggregates
    for clause in ("group", "having", "order", "limit", "offset", "distinct"):
        plain.set(clause, None)
    plain.set("expressions", _as_columns(columns))
    rows = run(plain.sql(dialect="sqlite"))
    for key, differs in _differing(rows, len(group), extreme).items():
        if differs and key in shown:
            names = ", ".join(column.sql(dialect="sqlite") for column in bare)
            return f"{names}: not aggregated or grouped, and the rows it may come from differ"
    return None


def _differing(rows: Iterator[Row], width: int, extreme: exp.Expression | None) -> dict[Row, bool]:
    """Return for each group key whether the rows that may supply its bare columns differ in them.

    A row has `width` key cells, the argument of the extreme, and the bare columns. With exactly one
    min or max, SQLite takes bare columns from a row that holds it, otherwise from any row.
    """
    better = operator.lt if isinstance(extreme, exp.Min) else operator.gt
    groups: dict[Row, tuple[Any, Row | None, bool]] = {}
    for row in rows:
        key, at, values = row[:width], row[width], row[width + 1 :]
        best, other, _differs = groups.get(key, (None, None, False))
        if key not in groups or (
            at is not None and (best is None or better(_rank(at), _rank(best)))
        ):
            groups[key] = (at, values, False)
        elif at == best and values != other:
            groups[key] = (at, other, True)
    return {key: differs for key, (_at, _values, differs) in groups.items()}


def _rank(cell: Any) -> tuple[int, Any]:
    """Return a sort key in SQLite's order of storage classes: numbers, then text, then blobs."""
    return (0 if isinstance(cell, int | float) else 1 if isinstance(cell, str) else 2), cell


def _regrouped(
    select: exp.Select, group: list[exp.Expression], terms: list[exp.Expression]
) -> exp.Select:
    """Return a query for the keys of the groups that `select` shows."""
    keys = select.copy()
    keys.set("distinct", None)
    keys.set("expressions", _as_columns(group))
    keys.args["group"].set("expressions", [node.copy() for node in group])
    for ordered, term in zip(keys.args["order"].expressions if terms else [], terms, strict=True):
        ordered.set("this", term.copy())
    return keys


def _as_columns(nodes: list[exp.Expression]) -> list[exp.Expression]:
    return [exp.alias_(node.copy(), f"c{number}") for number, node in enumerate(nodes)]
