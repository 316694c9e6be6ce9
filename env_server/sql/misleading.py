"""Where a result is not what it seems, for the statements that `run.may_mislead` lets through."""

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from env_server.sql.lookup import READ, Lookup, Names, Scope
from env_server.sql.misread_texts import PLAIN_NUMBER, TEXT_DATE, TEXT_NUMBER
from shared.order_by import Unresolved, resolve_term
from shared.sql_parser import parse_sql
from shared.sqltext import quote_identifier, quote_text

MAX_DIVISIONS = 5  # of a statement; each is written three times to look it up
FEW_VALUES = 20  # of a column, which show whether it has dates or numbers
_FLAG = "holds_here"
ORDERED = {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_COMPARED = (exp.EQ, exp.NEQ, exp.Is, exp.Like, exp.Glob, exp.In, exp.Between, *ORDERED)


def misleading_in(tree: exp.Expression, lookup: Lookup) -> Iterator[str]:
    """Yield remarks on what the result of a statement does not show."""
    names = Names(tree, lookup)
    scopes = [(one, Scope(one, names, lookup)) for one in tree.find_all(exp.Select)]
    for select, scope in scopes:
        yield from _names_read_as_text(select, scope)
    if isinstance(tree, exp.Select) and _cuts_fractions(tree, lookup):
        yield "whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"
    for select, scope in scopes:
        if select is tree:
            yield from _counted_nulls(select, scope, lookup)
        yield from _misread_texts(select, scope, lookup)


def _counted_nulls(select: exp.Select, scope: Scope, lookup: Lookup) -> Iterator[str]:
    """Yield the columns with NULLs, in the rows asked for, whose sum is divided by their number."""
    for one in select.expressions:
        for div in _own(one, exp.Div):
            total, count = div.find(exp.Sum), div.expression.unnest()
            place = scope.place(total.this) if total else None
            counted = isinstance(count, exp.Count) and isinstance(count.this, exp.Star)
            if not (place and counted):
                continue
            if _holds(select, f"count(*) > count({total.this.sql(**READ)})", lookup):
                yield (
                    f"count(*) counts the rows in which {place.shown} is NULL; "
                    f"avg({place.shown}) does not"
                )


def _misread_texts(select: exp.Select, scope: Scope, lookup: Lookup) -> Iterator[str]:
    """Yield the columns with dates or numbers that are ordered, compared or added up as texts."""
    for place in dict.fromkeys(filter(None, map(scope.place, _ordering(select)))):
        rows = lookup.rows(place.distinct, FEW_VALUES) or []
        texts = [one for [one] in rows if isinstance(one, str)]
        if len(texts) < max(2, len(rows)):
            continue
        if all(map(TEXT_DATE.fullmatch, texts)):
            yield (
                f"{place.shown} has dates such as {quote_text(texts[0])}, whose order as texts is "
                "not that of time"
            )
        numbers = list(filter(TEXT_NUMBER.fullmatch, texts))
        if numbers and all(one in numbers or PLAIN_NUMBER.fullmatch(one) for one in texts):
            yield f"{place.shown} has texts such as {quote_text(numbers[0])}, which are not numbers"


def _ordering(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield what a SELECT orders by, compares, adds up, or takes the least or greatest of."""
    order = select.args.get("order")
    for ordered in order.expressions if order else ():
        try:
            yield resolve_term(select, ordered.this)
        except Unresolved:
            continue
    for root in select.iter_expressions():
        for node in _own(root, (exp.Min, exp.Max, exp.Sum, exp.Avg, exp.Between, *ORDERED)):
            yield node.this
            if node.args.get("expression"):
                yield node.expression


def _names_read_as_text(select: exp.Select, scope: Scope) -> Iterator[str]:
    """Yield the names in double quotes, outside comparisons, that are no columns."""
    ordered = [one for name in ("group", "order") if (one := select.args.get(name))]
    for root in [*select.expressions, *ordered]:
        for column in _own(root, exp.Column):
            compared = not isinstance(column.find_ancestor(*_COMPARED, exp.Select), exp.Select)
            if not compared and (text := scope.text(column)) is not None:
                name = quote_identifier(text)
                yield f"{name} is no column: it was read as the text {quote_text(text)}"


def _own(root: exp.Expression, kind: Any) -> list[Any]:
    """Return the nodes of a kind below `root`, without those of queries inside it."""
    nodes = root.walk(prune=lambda node: isinstance(node, exp.Query))
    return [node for node in nodes if isinstance(node, kind)]


def _cuts_fractions(select: exp.Select, lookup: Lookup) -> bool:
    """Return whether a division in the result's columns had two whole numbers and a remainder; not
    one that wants a whole number: (a + 2) / 3, a / 10 * 10 or a sort key."""
    divisions = [
        div
        for one in select.expressions
        for div in _own(one, exp.Div)
        if div.find_ancestor(exp.Mul, exp.Ordered, exp.Mod, exp.Select) is div.parent_select
        and not isinstance(div.this.unnest(), (exp.Add, exp.Sub))
    ]
    if not 0 < len(divisions) <= MAX_DIVISIONS or select.args.get("distinct"):
        return False
    flags = []
    for div in divisions:
        left, right = (side.sql(**READ) for side in (div.this, div.expression))
        whole = f"typeof({left}) = 'integer' AND typeof({right}) = 'integer'"
        cut = f"({whole} AND ({left}) % ({right}) <> 0)"
        # of a group, any row's
        flags.append(cut if div.find(exp.AggFunc) or not select.args.get("group") else f"max{cut}")
    return _holds(select, " OR ".join(flags), lookup)


def _holds(select: exp.Select, condition: str, lookup: Lookup) -> bool:
    """Return whether a condition holds in a row of the result."""
    flag = parse_sql(f"SELECT {condition} AS {_FLAG}").expressions[0]
    asked = select.copy()
    asked.append("expressions", flag)  # the others stay: ORDER BY and GROUP BY may name them
    rows = lookup.rows(f"SELECT max({_FLAG}) FROM ({asked.sql(**READ)})")
    return rows is not None and rows[0][0] == 1
