"""Finds where equal sort keys leave a query's answer open.

Two cases count. A LIMIT cuts through rows that its ORDER BY leaves equal and that differ in what
they show (also inside a subquery that runs alone). Or the order of the whole result, which the
question asks for, is open for such rows. The query is run again without its LIMIT, with the sort
keys beside each row.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.golds.parsing import Unreadable, parse, resolve_term

Row = tuple[Any, ...]
Run = Callable[[str], Iterator[Row]]  # SQL -> its rows, streamed

UNCHECKED = "can't check the order for ties: "


def find_tie(sql: str, run: Run) -> str | None:
    """One line that says where `sql` has a tie, or that it can't be checked; None where its answer
    is unique."""
    try:
        query = parse(sql)
        if (tie := _tie_of(query, run, order_matters=True)) is not None:
            return tie
        for inner in query.find_all(exp.Query):
            if inner is query or not (inner.args.get("limit") or inner.args.get("offset")):
                continue
            try:
                tie = _tie_of(inner, run, order_matters=False)
            except (Unreadable, apsw.SQLError) as error:  # correlated, or it reads a WITH table
                if inner.args.get("order"):
                    return f"{UNCHECKED}in a subquery: {str(error).splitlines()[0]}"
                # the reversed scan, which an ORDER BY is exempt from, is the check that is left
                continue
            if tie is not None:
                return f"in a subquery: {tie}"
    except (Unreadable, SqlglotError, apsw.SQLError) as error:
        return UNCHECKED + str(error).splitlines()[0]
    return None


def _tie_of(query: exp.Query, run: Run, *, order_matters: bool) -> str | None:
    order = query.args.get("order")
    start, stop = _window(query)
    if order is None and start == 0 and stop is None:
        return None
    terms = [ordered.this for ordered in order.expressions] if order else []
    whole = query.copy()
    whole.set("limit", None)
    whole.set("offset", None)
    if isinstance(query, exp.Select):
        keyed, keys_of = _with_keys(cast(exp.Select, whole), terms, run)
    else:
        keyed, keys_of = whole, _key_columns(query, terms)
    rows = run(keyed.sql(dialect="sqlite"))
    try:
        return _scan(rows, keys_of, start, stop, order_matters=order_matters and bool(terms))
    finally:
        rows.close()  # type: ignore[attr-defined]  # a generator, which holds a cursor


def _scan(
    rows: Iterable[Row],
    split: Callable[[Row], tuple[Row, Row]],
    start: int,
    stop: int | None,
    *,
    order_matters: bool,
) -> str | None:
    """Looks at each group of equal keys that the window [start, stop) shows some of.

    A group is a tie where its rows differ in what they show, and the window cuts it or their order
    matters.
    """
    past = 0
    for keys, group in groupby(map(split, rows), key=itemgetter(1)):
        first, shown, differs = past, None, False
        for visible, _keys in group:
            if shown is None:
                shown = visible
            differs = differs or visible != shown
            past += 1
            if differs and stop is not None and past > stop:
                break
        whole = first >= start and (stop is None or past <= stop)
        if differs and past > start and (order_matters or not whole):
            equal = (
                "are equal in the sort key " + ", ".join(map(repr, keys))
                if keys
                else "have no order"
            )
            return f"rows {first + 1} to {past} differ and {equal}"
        if stop is not None and past >= stop:
            return None
    return None


def _window(query: exp.Query) -> tuple[int, int | None]:
    """`(start, stop)` row indices that LIMIT and OFFSET leave; stop None is no limit."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    start = max(_whole_number(offset.expression), 0) if offset else 0
    if limit is None:
        return start, None
    count = _whole_number(limit.expression)
    return start, None if count < 0 else start + count


def _whole_number(node: exp.Expression) -> int:
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if not (isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdigit()):
        raise Unreadable(f"{node.sql(dialect='sqlite')} is not a plain number")
    return sign * int(node.this)


def _with_keys(
    select: exp.Select, terms: list[exp.Expression], run: Run
) -> tuple[exp.Select, Callable[[Row], tuple[Row, Row]]]:
    """`select` with its sort terms as further columns, and what splits its rows into (visible,
    keys)."""
    keys = [resolve_term(select, term) for term in terms]
    shown = {projection.unalias() for projection in select.expressions}
    keyed = select.copy()
    for number, key in enumerate(keys):
        keyed.append("expressions", exp.alias_(key.copy(), f"sort_key_{number}"))
    if select.args.get("distinct") and not shown.issuperset(keys):
        bare = select.copy()
        bare.set("order", None)
        if _count(run, bare) != _count(run, keyed):
            raise Unreadable("DISTINCT rows have more than one sort key each")
    cut = -len(keys) if keys else None
    return keyed, lambda row: (row[:cut], row[cut:] if cut else ())


def _key_columns(query: exp.Query, terms: list[exp.Expression]) -> Callable[[Row], tuple[Row, Row]]:
    """For UNION and its kin, whose sort terms are output columns: what splits a row into (visible,
    keys)."""
    branches: list[exp.Query] = [query]
    while any(isinstance(branch, exp.SetOperation) for branch in branches):
        branches = [
            part
            for branch in branches
            for part in (
                [branch.left, branch.right] if isinstance(branch, exp.SetOperation) else [branch]
            )
        ]
    indices = [_output_index(branches, term) for term in terms]
    return lambda row: (row, tuple(row[index] for index in indices))


def _output_index(branches: list[exp.Query], term: exp.Expression) -> int:
    if isinstance(term, exp.Literal) and not term.is_string:
        return int(term.this) - 1
    for branch in branches:
        if any(projection.is_star for projection in branch.selects):
            break
        for index, projection in enumerate(branch.selects):
            by_name = (
                isinstance(term, exp.Column)
                and projection.alias_or_name.lower() == term.name.lower()
            )
            if by_name or projection.unalias() == term:
                return index
    raise Unreadable(f"{term.sql(dialect='sqlite')} is not an output column")


def _count(run: Run, select: exp.Select) -> int:
    return sum(1 for _row in run(select.sql(dialect="sqlite")))
