"""Where order counts, and where equal sort keys leave an answer open.

ORDER BY at the top level of a gold orders its answer; a subquery's does not. Rows of equal sort
keys may stand in any order, and where LIMIT cuts through them any of them may be shown. So an
answer is a sequence of blocks, each a number of rows from among those of one sort key. `tie_query`
is the gold with its sort keys in view and without its LIMIT; `blocks_of` makes the blocks of that
query's rows.

Ties in a subquery with a LIMIT are not seen here: `python -m data` refuses such golds.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from sqlglot import exp

Row = tuple[Any, ...]

_ORDER = re.compile(r"\border\b", re.IGNORECASE)
_ORDER_BY = re.compile(r"\border(?:\s|/\*.*?\*/|--[^\n]*\n)+by\b", re.IGNORECASE | re.DOTALL)
_ORDER_OR_LIMIT = re.compile(r"\border\b|\blimit\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of an answer: `take` of the `rows`, each at most once, in any order."""

    take: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class TieQuery:
    """What to run for `blocks_of`. The answer is rows `start` to `stop` of it, without their last
    `hidden` columns.

    `keys`: the places of the sort keys in a row.
    """

    sql: str
    hidden: int
    keys: tuple[int, ...]
    start: int
    stop: int | None

    @property
    def is_gold(self) -> bool:
        """Whether the gold's own rows are those of `sql`."""
        return not self.hidden and self.start == 0 and self.stop is None


def is_ordered(sql: str) -> bool:
    """Whether the top level of a statement has ORDER BY. A subquery's does not count."""
    if not _ORDER.search(sql):  # spares the parser for four in five
        return False
    query = _parse(sql)
    return _order_outside_parentheses(sql) if query is None else query.args.get("order") is not None


def tie_query(sql: str) -> TieQuery | None:
    """The query that shows where `sql` leaves its answer open.

    None where it orders and cuts nothing, and where its sort keys can't be told: those of SELECT
    DISTINCT that are not shown, those of UNION and its kin that are no column's name or number,
    expressions over an output column's alias, and what the parser can't read.
    """
    query = _parse(sql) if _ORDER_OR_LIMIT.search(sql) else None
    if query is None:
        return None
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        order, (start, stop) = query.args.get("order"), _window(query)
        if (order is None and start == 0 and stop is None) or not isinstance(query, exp.Query):
            return None
        whole = query.copy()
        whole.set("limit", None)
        whole.set("offset", None)
        terms = [ordered.this for ordered in order.expressions] if order else []
        found = [_column_of(query, term) for term in terms]
        hidden = [term for term, place in zip(terms, found, strict=True) if place is None]
        if hidden and (not isinstance(query, exp.Select) or query.args.get("distinct")):
            return None
        if any(_names_an_alias(query, term) for term in hidden):
            return None
        for number, term in enumerate(hidden):
            whole.append("expressions", exp.alias_(term.copy(), f"sort_key_{number}"))
        left = iter(range(-len(hidden), 0))
        keys = tuple(next(left) if place is None else place for place in found)
        return TieQuery(whole.sql(dialect="sqlite"), len(hidden), keys, start, stop)
    except (SqlglotError, ValueError, RecursionError):
        return None


def blocks_of(
    query: TieQuery, rows: Sequence[Row], gold: Sequence[Row]
) -> tuple[Block, ...] | None:
    """The blocks of the answer `gold`, from the first rows of `query.sql`; None where they don't
    hold the gold."""
    blocks, past = [], 0
    for _, group in groupby(rows, key=itemgetter(*query.keys) if query.keys else lambda row: ()):
        shown = [row[: len(row) - query.hidden] for row in group]
        first, past = past, past + len(shown)
        take = (past if query.stop is None else min(past, query.stop)) - max(first, query.start)
        if take > 0:
            blocks.append(Block(take, tuple(shown)))
    start = 0
    for block in blocks:
        if not Counter(gold[start : start + block.take]) <= Counter(block.rows):
            return None
        start += block.take
    return tuple(blocks) if start == len(gold) else None


@cache
def _parse(sql: str) -> "exp.Expression | None":
    """The parsed statement, which callers must not change; None where the parser can't read it."""
    import sqlglot  # slow to import, and only the server's reset needs it
    from sqlglot.errors import SqlglotError

    try:  # the parser takes ORDER BY for one word, and what a comment parts for something else
        return cast(
            "exp.Expression", sqlglot.parse_one(_ORDER_BY.sub("ORDER BY", sql), read="sqlite")
        )
    except (SqlglotError, RecursionError):
        return None


def _order_outside_parentheses(sql: str) -> bool:
    text = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "''", sql)
    while (shorter := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = shorter
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None


def _window(query: "exp.Expression") -> tuple[int, int | None]:
    """`(start, stop)` row indices that LIMIT and OFFSET leave. ValueError where they are no plain
    numbers."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    start = max(int(offset.expression.sql()), 0) if offset else 0
    count = int(limit.expression.sql()) if limit else -1
    return start, None if count < 0 else start + count


def _column_of(query: Any, term: Any) -> int | None:
    """The place of the output column that an ORDER BY term is: by number, by name, or the same
    expression."""
    from sqlglot import exp

    term = term.this if isinstance(term, exp.Collate) else term
    if isinstance(term, exp.Literal) and not term.is_string:
        return int(term.this) - 1
    columns = query.selects
    if any(column.is_star for column in columns):
        return None
    name = term.name.lower() if isinstance(term, exp.Column) and not term.table else None
    for place, column in enumerate(columns):
        if (name is not None and column.alias_or_name.lower() == name) or column.unalias() == term:
            return place
    return None


def _names_an_alias(select: Any, term: Any) -> bool:
    """Whether a name in an ORDER BY expression may be an output column's alias: a table's column of
    that name wins."""
    from sqlglot import exp

    aliases = {column.alias.lower() for column in select.selects if isinstance(column, exp.Alias)}
    return any(
        not column.table and column.name.lower() in aliases for column in term.find_all(exp.Column)
    )
