"""A gold answer: its type, its rows, and which other rows are the same answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from env_server.verifier.cells import Scalar
from env_server.verifier.numbers import unit_words
from env_server.verifier.order import Block, TieQuery, blocks_of, is_ordered, tie_query
from shared.models import AnswerType


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer. `rows`: a scalar is one row of one cell, a list rows of one cell.

    blocks      what is the same answer: see `order.Block`; one block where order does not count
    ties        what is still to be run to know the ties, or None; see `with_ties`
    sql         the gold SQL
    words       stems of the question's words, which may stand after a number as its unit
    """

    answer_type: AnswerType
    rows: tuple[tuple[Scalar, ...], ...]
    blocks: tuple[Block, ...]
    ties: TieQuery | None = None
    sql: str = ""
    words: frozenset[str] = frozenset()

    @property
    def ordered(self) -> bool:
        """Whether order counts, if only between some of the rows."""
        return len(self.blocks) > 1

    @classmethod
    def of(cls, answer: Any, answer_type: AnswerType, sql: str, question: str = "") -> "Gold":
        """From a question's `gold_answer`, `answer_type`, `gold_sql` and `question_text`.

        ValueError where answer and type disagree.
        """
        if answer_type == "table":
            rows = answer
        elif answer_type == "list":
            rows = [[cell] for cell in answer] if isinstance(answer, list) else None
        else:
            rows = [[answer]]
        if not (
            isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)
        ):
            raise ValueError(f"not a {answer_type}: {str(answer)[:80]!r}")
        if not all(
            cell is None or isinstance(cell, int | float | str) for row in rows for cell in row
        ):
            raise ValueError(f"a cell is neither number, text nor null: {str(answer)[:80]!r}")
        return cls._with_order(answer_type, tuple(map(tuple, rows)), sql, unit_words(question))

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]], sql: str, *, ties: bool = True) -> "Gold":
        """From the rows that the gold SQL returns, to compare another query's with. There may be
        none.

        Without `ties` the gold's own rows in their own order are the only answer, as other
        evaluators have it.
        """
        return cls._with_order("table", tuple(map(tuple, rows)), sql, frozenset(), ties)

    def with_ties(self, rows: Sequence[Sequence[Any]]) -> "Gold":
        """The gold with its ties known, from the first rows of `ties.sql`.

        Where they don't hold the gold (the query failed, or the data differ) the gold's own order
        is left to count.
        """
        if self.ties is None:
            return self
        blocks = blocks_of(self.ties, list(map(tuple, rows)), self.rows)
        return replace(self, ties=None, blocks=self.blocks if blocks is None else blocks)

    @classmethod
    def _with_order(
        cls,
        answer_type: AnswerType,
        rows: tuple[tuple[Scalar, ...], ...],
        sql: str,
        words: frozenset[str],
        with_ties: bool = True,
    ) -> "Gold":
        ties = tie_query(sql) if rows and with_ties else None
        if ties is not None and len(rows) == 1 and ties.is_gold:
            ties = None
        if len(rows) > 1 and is_ordered(sql):
            blocks = tuple(Block(1, (row,)) for row in rows)
        else:
            blocks = (Block(len(rows), rows),)
        gold = cls(answer_type, rows, blocks, ties, sql, words)
        return gold.with_ties(rows) if ties is not None and ties.is_gold else gold
