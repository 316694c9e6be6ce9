"""Finds window functions whose result is open, since rows with equal sort keys may stand in any
order in the window.

`row_number() OVER (ORDER BY kind)` numbers the rows of one kind as they come, also with SQLite's
scans reversed. So the query is run with each such window's order settled by what tells the rows
apart, ascending and descending: a result that changes is open. Functions that treat equal keys
alike (`rank()`, `sum() OVER (ORDER BY x)`) are left as they stand; so, unchecked, are `last_value`
and `nth_value` without a ROWS frame, windows with a name, and those over a subquery or a WITH
table, whose rows have no rowid.
"""

import re
from collections.abc import Iterator
from typing import cast

from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.golds.parsing import Unreadable, parse, resolve_term

_OVER = re.compile(r"\bover\s*\(", re.IGNORECASE)
_POSITIONAL = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue)


def settled(sql: str) -> tuple[str, str] | None:
    """`sql` with its windows' order settled in two opposite ways; None where no window is open, or
    none can be read."""
    if not _OVER.search(sql):
        return None
    try:
        ways = [_settle(parse(sql), descending) for descending in (False, True)]
    except (SqlglotError, Unreadable):
        return None
    return (ways[0], ways[1]) if ways[0] != ways[1] else None


def _settle(query: exp.Query, descending: bool) -> str:
    query = query.copy()
    for window in list(query.find_all(exp.Window)):
        order, select = window.args.get("order"), window.find_ancestor(exp.Select)
        if order is not None and select is not None and _is_positional(window):
            for key in _telling_apart(select):
                order.append("expressions", exp.Ordered(this=key, desc=descending))
    return str(query.sql(dialect="sqlite"))


def _is_positional(window: exp.Window) -> bool:
    """Whether rows of equal keys can get other values where they stand in another order."""
    frame = window.args.get("spec")
    by_row = frame is not None and str(frame.args.get("kind")).upper() == "ROWS"
    return by_row or isinstance(window.this, _POSITIONAL)


def _telling_apart(select: exp.Select) -> Iterator[exp.Expression]:
    """What no two rows that a window of `select` sees have in common: the groups' keys, or the
    rows' own."""
    if group := select.args.get("group"):
        yield from (resolve_term(select, term) for term in group.expressions)
        return
    sources = [select.args.get("from") or select.args.get("from_"), *select.args.get("joins", [])]
    for source in (cast(exp.Expression, source.this) for source in sources if source is not None):
        if isinstance(source, exp.Table):
            yield exp.column("rowid", table=source.alias_or_name, quoted=True)
