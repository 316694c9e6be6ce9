"""A gold answer: its type, its rows, and which other rows are the same answer.

ORDER BY at the top level of a gold query orders its answer; a subquery's does not. Rows with equal
sort keys may come in any order, and if LIMIT cuts through them, any of them may be shown. So an
answer is a sequence of blocks, each a number of rows out of those with one sort key.

Ties in a subquery with a LIMIT are not detected: the data tools reject such golds.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from shared.answers.cells import Scalar
from shared.answers.numbers import unit_words
from shared.models import AnswerType
from shared.order_by import Row, TieQuery, Unresolved, parse_query, tie_query

Rows = tuple[tuple[Scalar, ...], ...]

_ORDER = re.compile(r"\border\b", re.IGNORECASE)
_ORDER_BY = re.compile(r"\border(?:\s|/\*.*?\*/|--[^\n]*\n)+by\b", re.IGNORECASE | re.DOTALL)
_ORDER_OR_LIMIT = re.compile(r"\border\b|\blimit\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of an answer: `take` of the `rows`, each at most once, in any order."""

    take: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer."""

    answer_type: AnswerType
    rows: Rows  # a scalar is one row of one cell, a list is rows of one cell
    blocks: tuple[Block, ...]  # which rows are the same answer; one block if order does not count
    ties: TieQuery | None = None  # the query that must still run to determine them: `with_ties`
    sql: str = ""
    words: frozenset[str] = frozenset()  # stems of the question's, which may be a number's unit

    @classmethod
    def of(cls, answer: Any, answer_type: AnswerType, sql: str, question: str = "") -> "Gold":
        """Build it from a question's fields. `ValueError` if the answer does not have the type."""
        if answer_type == "table":
            rows = answer
        elif answer_type == "list":
            rows = [[cell] for cell in answer] if isinstance(answer, list) else None
        else:
            rows = [[answer]]
        full = isinstance(rows, list) and all(isinstance(row, list) and row for row in rows)
        if not full:
            raise ValueError(f"not a {answer_type}: {str(answer)[:80]!r}")
        if not all(isinstance(cell, int | float | str | None) for row in rows for cell in row):
            raise ValueError(f"a cell is not a number, a string or null: {str(answer)[:80]!r}")
        cells: Rows = tuple(map(tuple, rows))
        ties = find_ties(sql) if cells else None
        if ties is not None and len(cells) == 1 and ties.is_original:
            ties = None
        if len(cells) > 1 and is_ordered(sql):
            blocks = tuple(Block(1, (row,)) for row in cells)
        else:
            blocks = (Block(len(cells), cells),)
        gold = cls(answer_type, cells, blocks, ties, sql, unit_words(question))
        return gold.with_ties(cells) if ties is not None and ties.is_original else gold

    def with_ties(self, rows: Sequence[Sequence[Any]]) -> "Gold":
        """Return the gold with its ties determined by the first rows of `ties.sql`; if these do not
        hold the gold, its own order counts."""
        if self.ties is None:
            return self
        blocks = blocks_of(self.ties, list(map(tuple, rows)), self.rows)
        return replace(self, ties=None, blocks=self.blocks if blocks is None else blocks)


def is_ordered(sql: str) -> bool:
    """Return whether the top level of a query has ORDER BY."""
    if not _ORDER.search(sql):  # avoids parsing four in five
        return False
    query = _parse(sql)
    return _order_outside_parentheses(sql) if query is None else query.args.get("order") is not None


def find_ties(sql: str) -> TieQuery | None:
    """Return the query that shows where `sql` leaves its answer open, if it does and its sort keys
    can be determined."""
    query = _parse(sql) if _ORDER_OR_LIMIT.search(sql) else None
    try:
        ties = None if query is None else tie_query(query)
    except (SqlglotError, Unresolved, RecursionError):
        return None
    return None if ties is None or ties.distinct else ties


def blocks_of(ties: TieQuery, rows: Sequence[Row], gold: Sequence[Row]) -> tuple[Block, ...] | None:
    """Return the blocks of the answer `gold` from the first rows of `ties.sql`, if they hold it."""
    blocks, past = [], 0
    for _keys, group in groupby(map(ties.split, rows), key=itemgetter(1)):
        visible = tuple(row for row, _ in group)
        first, past = past, past + len(visible)
        take = (past if ties.stop is None else min(past, ties.stop)) - max(first, ties.start)
        if take > 0:
            blocks.append(Block(take, visible))
    start = 0
    for block in blocks:
        if not Counter(gold[start : start + block.take]) <= Counter(block.rows):
            return None
        start += block.take
    return tuple(blocks) if start == len(gold) else None


def _parse(sql: str) -> exp.Query | None:
    try:  # the parser reads ORDER BY as one token, and fails if a comment separates the words
        return parse_query(_ORDER_BY.sub("ORDER BY", sql))
    except (SqlglotError, RecursionError):
        return None


def _order_outside_parentheses(sql: str) -> bool:
    text = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "''", sql)
    while (shorter := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = shorter
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None
