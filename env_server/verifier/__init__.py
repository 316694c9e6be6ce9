"""Decide whether an ANSWER is the gold answer: read many forms of text, compare them strictly.

    gold.py       `Gold`: a gold answer, and which other rows are the same answer
    reading.py    an answer's text -> the rows that it may stand for
    cells.py      how one number, date or text is read, with separators and units
    values.py     the gold's values, and which of them a cell of the answer may be
    matching.py   pair the rows of two results, and their columns
    standards.py  `judge_answer`; `STANDARDS`: strict (ours), Spider's and BIRD's

An answer has the gold's type. 1 equals 1.0; text is compared without letter case, outer white
space, outer quotes and a final full stop; NULL equals NULL; no rows are `[]`, none, null or `(no
rows)`; a float is right if it is the gold rounded to the decimals given, with three significant
digits or more. Lists and tables are bags: order counts only if the gold SQL's top level has ORDER
BY, and not among rows of equal sort keys. Columns are compared by position. Whole texts are
compared: 'It is 42' is not 42.
"""

from env_server.verifier.gold import Gold, is_ordered
from env_server.verifier.matching import column_order
from env_server.verifier.reading import unwrapped_texts
from env_server.verifier.standards import (
    STANDARDS,
    STRICT,
    answer_verdicts,
    judge_answer,
    result_verdicts,
)

__all__ = [
    "STANDARDS",
    "STRICT",
    "VERIFIER_VERSION",
    "Gold",
    "answer_verdicts",
    "column_order",
    "is_ordered",
    "judge_answer",
    "result_verdicts",
    "unwrapped_texts",
]

VERIFIER_VERSION = "7"
