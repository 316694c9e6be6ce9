"""A gold answer, and where its order counts."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from env_server.verifier.cells import Scalar
from env_server.verifier.numbers import unit_words
from shared.models import AnswerType


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold answer. `rows`: a scalar is one row of one cell, a list rows of one cell. `ordered`: order counts.

    `words`: stems of the question's words, which may stand after a number as its unit.
    """

    answer_type: AnswerType
    rows: tuple[tuple[Scalar, ...], ...]
    ordered: bool
    words: frozenset[str] = frozenset()

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
        if not (isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)):
            raise ValueError(f"not a {answer_type}: {str(answer)[:80]!r}")
        if not all(cell is None or isinstance(cell, int | float | str) for row in rows for cell in row):
            raise ValueError(f"a cell is neither number, text nor null: {str(answer)[:80]!r}")
        return cls(answer_type, tuple(map(tuple, rows)), len(rows) > 1 and is_ordered(sql), unit_words(question))


@cache
def is_ordered(sql: str) -> bool:
    """Whether the top level of a statement has ORDER BY. A subquery's does not count."""
    if not re.search(r"\border\s+by\b", sql, re.IGNORECASE):  # spares the parser for four in five
        return False
    import sqlglot  # slow to import, and only the server's reset needs it
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(sql, read="sqlite").args.get("order") is not None
    except SqlglotError:
        return _order_outside_parentheses(sql)


def _order_outside_parentheses(sql: str) -> bool:
    text = re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", "''", sql)
    while (shorter := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = shorter
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None
