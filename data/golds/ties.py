"""Find gold queries whose answer equal sort keys leave open, in ORDER BY and in window functions.

`find_tie` reports two cases: a LIMIT cuts through rows that have equal sort keys and look different
(also in a subquery that runs on its own), or such rows leave the order of the whole result open. Of
a tie at the top level the server can determine every member, within limits: `Tie.whole`.

`settle_orders` fully orders the rows of windows such as `row_number() OVER (ORDER BY kind)`, and
the parts of a group_concat.
Not checked: `last_value` and `nth_value` without a ROWS frame, named windows, and windows over a
subquery, a view or a WITH table, whose rows have no rowid.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import cast

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from shared.order_by import Row, TieQuery, Unresolved, parse_query, resolve_term, tie_query

Run = Callable[[str], Generator[Row]]  # SQL -> its rows, streamed

UNCHECKED = "can't check the order for ties: "
MAX_TIE_ROWS = 1_000  # that the server reads to determine a tie: `SqlLimits.gold_rows`
_SETTLED = re.compile(r"\b(?:over|\w+_(?:concat|agg|array))\s*\(", re.IGNORECASE)
# what they give a row depends on its place among rows of equal keys
_POSITIONAL = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue)


@dataclass(frozen=True)
class Tie:
    """Rows of equal sort keys. `detail` is one line that locates them.

    `whole` returns every row that the tied answer may hold, with its sort keys; None if the server
    could not determine them.
    """

    detail: str
    whole: str | None = None


def find_tie(sql: str, run: Run) -> Tie | None:
    """Return a tie, or why it can't be checked; None without ties.

    A tie that the server can't determine, such as one in a subquery, comes before one that it can.
    """
    try:
        query = parse_query(sql)
        tie = _tie_of(query, run, order_matters=True)
        if tie is not None and tie.whole is None:
            return tie
        for inner in query.find_all(exp.Query):
            if inner is query or not (inner.args.get("limit") or inner.args.get("offset")):
                continue
            try:
                inner_tie = _tie_of(inner, run, order_matters=False)
            except (Unresolved, apsw.SQLError) as error:  # correlated, or it reads a WITH table
                if inner.args.get("order"):
                    return Tie(f"{UNCHECKED}in a subquery: {str(error).splitlines()[0]}")
                # without ORDER BY the reversed scan, the next check, finds what is open
                continue
            if inner_tie is not None:
                return Tie(f"in a subquery: {inner_tie.detail}")
    except (Unresolved, SqlglotError, apsw.SQLError) as error:
        return Tie(UNCHECKED + str(error).splitlines()[0])
    return tie


def _tie_of(query: exp.Query, run: Run, *, order_matters: bool) -> Tie | None:
    keyed = tie_query(query)
    if keyed is None:
        return None
    if keyed.distinct:
        plain = query.copy()
        for clause in ("order", "limit", "offset"):
            plain.set(clause, None)
        plain_sql = plain.sql(dialect="sqlite")
        if sum(1 for _ in run(plain_sql)) != sum(1 for _ in run(keyed.sql)):
            raise Unresolved("DISTINCT rows have more than one sort key each")
    with closing(run(keyed.sql)) as rows:  # it holds a cursor
        detail, past = _scan(rows, keyed, order_matters=order_matters and bool(keyed.keys))
    if detail is None:
        return None
    if keyed.distinct:
        return Tie(f"{detail}; the server can't determine a tie of DISTINCT rows with hidden keys")
    if past > MAX_TIE_ROWS:
        return Tie(f"{detail}; the server can't determine a tie beyond {MAX_TIE_ROWS:,} rows")
    return Tie(detail, f"{keyed.sql} LIMIT {past}")


def _scan(rows: Iterable[Row], query: TieQuery, *, order_matters: bool) -> tuple[str | None, int]:
    """Return a line about the first tie, whose rows are cut or unordered, and the number of rows up
    to the last with a sort key of the answer. It counts no further than one over `MAX_TIE_ROWS`.
    """
    start, stop, past = query.start, query.stop, 0
    detail = None
    for keys, group in groupby(map(query.split, rows), key=itemgetter(1)):
        first, sample, differs = past, None, False
        for visible, _keys in group:
            if sample is None:
                sample = visible
            differs = differs or visible != sample
            past += 1
            if (differs or detail) and past > MAX_TIE_ROWS:
                break
        whole = first >= start and (stop is None or past <= stop)
        if detail is None and differs and past > start and (order_matters or not whole):
            equal = f"are equal in the sort key {', '.join(map(repr, keys))}"
            detail = f"rows {first + 1} to {past} differ and {equal if keys else 'have no order'}"
        if (stop is not None and past >= stop) or (detail and past > MAX_TIE_ROWS):
            break
    return detail, past


def settle_orders(sql: str) -> list[str]:
    """Return `sql` with the rows of its windows and the parts of its lists (group_concat) fully
    ordered: ascending, and descending."""
    if not _SETTLED.search(sql):
        return []
    try:
        return [_settle(parse_query(sql).copy(), descending) for descending in (False, True)]
    except (SqlglotError, Unresolved):
        return []


def _settle(query: exp.Query, descending: bool) -> str:
    for window in list(query.find_all(exp.Window)):
        order, frame = window.args.get("order"), window.args.get("spec")
        by_row = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
        select = window.find_ancestor(exp.Select)
        if order and select and (by_row or isinstance(window.this, _POSITIONAL)):
            for key in _row_identity(select):
                order.append("expressions", exp.Ordered(this=key, desc=descending))
    for listed in list(query.find_all(exp.GroupConcat, exp.JSONArrayAgg)):
        select, parts = listed.find_ancestor(exp.Select), listed.this
        given = isinstance(parts, exp.Order) or isinstance(listed.parent, exp.Window)
        if select and not given and not any(one.find(exp.Order) for one in _sources(select)):
            key = parts.expressions[0] if isinstance(parts, exp.Distinct) else parts
            by = exp.Ordered(this=key.copy(), desc=descending)
            listed.set("this", exp.Order(this=parts.copy(), expressions=[by]))
    return str(query.sql(dialect="sqlite"))


def _sources(select: exp.Select) -> list[exp.Expression]:
    clauses = [select.args.get("from") or select.args.get("from_"), *select.args.get("joins", [])]
    return [cast(exp.Expression, clause.this) for clause in clauses if clause is not None]


def _row_identity(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield what identifies each row that a window of `select` sees: group keys, or rowids."""
    if group := select.args.get("group"):
        yield from (resolve_term(select, term) for term in group.expressions)
        return
    for source in _sources(select):
        if isinstance(source, exp.Table):
            yield exp.column("rowid", table=source.alias_or_name, quoted=True)
