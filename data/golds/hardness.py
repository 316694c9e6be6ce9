"""The difficulty of a query by Spider's own rules, on sqlglot's tree, and the tables it reads.

Spider's evaluator counts three kinds of component of the outermost query and maps the counts to
easy, medium, hard and extra; the last two are `hard` here. It counts NOT before a condition, and
AND or OR between HAVING conditions, as aggregates, and aggregates inside HAVING not at all: so does
this. It is an approximation because the original has its own grammar, without CASE, WITH, windows
and functions: here their content counts like any other expression, and a WITH table as a nested
query.
"""

from collections.abc import Iterator
from typing import cast

from sqlglot import exp

from data.golds.bare_columns import own_nodes
from shared.models import Difficulty
from shared.order_by import parse_query


def difficulty_of(sql: str) -> Difficulty:
    """Return Spider's hardness of `sql`, extra counted as hard. Raises sqlglot's errors."""
    plain, nested, others = _count_components(parse_query(sql))
    if nested == 0 and plain <= 1 and others == 0:
        return "easy"
    if nested == 0 and ((others <= 2 and plain <= 1) or (plain <= 2 and others < 2)):
        return "medium"
    return "hard"


def _count_components(query: exp.Query) -> tuple[int, int, int]:
    """Return (plain, nested, others) of the outermost query; of a UNION, of its first branch.

    plain: WHERE, GROUP BY, ORDER BY, LIMIT, each join, each OR, each LIKE. nested: each subquery in
    a condition, and one for UNION, INTERSECT or EXCEPT. others: one for each of aggregates, output
    columns, WHERE conditions and GROUP BY terms of which there are two or more.
    """
    first: exp.Expression = query
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.this
    select = cast(exp.Select, first)
    args = select.args
    joins = args.get("joins") or []
    where, having = args.get("where"), args.get("having")
    conditions = [join.args["on"] for join in joins if join.args.get("on")]
    conditions += [clause.this for clause in (where, having) if clause]
    inside = [node for condition in conditions for node in own_nodes(condition)]

    plain = sum(bool(args.get(part)) for part in ("where", "group", "order", "limit"))
    plain += len(joins) + sum(isinstance(node, exp.Or | exp.Like) for node in inside)

    nested = sum(isinstance(node, exp.Query | exp.Subquery) for node in inside)
    nested += int(isinstance(query, exp.SetOperation)) + len(query.ctes)

    group = args["group"].expressions if args.get("group") else []
    order = args["order"].expressions if args.get("order") else []
    shown = [*select.expressions, *group, *order]
    aggregates = sum(any(isinstance(n, exp.AggFunc) for n in own_nodes(node)) for node in shown)
    leaves = 0
    if where:
        aggregates += sum(isinstance(node, exp.Not) for node in own_nodes(where))
        leaves = sum(1 for _leaf in _leaves(where.this))
    if having:
        aggregates += sum(isinstance(node, exp.And | exp.Or) for node in own_nodes(having))
    others = sum(count > 1 for count in (aggregates, len(select.expressions), leaves, len(group)))
    return plain, nested, others


def tables_of(sql: str, known: list[str]) -> list[str]:
    """Return the tables that `sql` reads, by first mention, spelt as in `known`."""
    query = parse_query(sql)
    spelling = {name.lower(): name for name in known}
    made = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    mentioned = [table.name.lower() for table in query.find_all(exp.Table, bfs=False)]
    return list(dict.fromkeys(spelling.get(name, name) for name in mentioned if name not in made))


def _leaves(condition: exp.Expression) -> Iterator[exp.Expression]:
    """Yield the conditions that AND and OR join."""
    inner = condition.unnest()
    if isinstance(inner, exp.And | exp.Or):
        yield from _leaves(inner.left)
        yield from _leaves(inner.right)
    else:
        yield inner
