"""Is an ANSWER the gold answer? Text is read in every form that models write; the comparison itself
is strict.

    gold.py       `Gold`: a gold answer, and which other rows are the same answer
    order.py      where order counts, and where equal sort keys leave it open
    reading.py    an answer's text -> the rows that it may stand for
    cells.py      is this cell that value?
    numbers.py    numbers with separators and units
    bags.py       can these rows be paired with those?
    text.py       `verify`: is a text the gold answer?
    standards.py  `STANDARDS`: ours (strict, as `verify`), Spider's and BIRD's, for texts and for SQL results
    columns.py    results that differ in the order of their columns
    typed.py      a text's cells as the gold's values

An answer's type is the gold's. Values: 1 is 1.0; text is compared without letter case, outer white
space, outer quotes and a final full stop; NULL is NULL; a float is right where it is the gold
rounded to as many decimals as it has, given three significant digits or more. Lists and tables are
bags: order counts only where the gold SQL's top level has ORDER BY, and there not among rows of
equal sort keys. Columns are compared by position. Whole texts are compared: 'It is 42' is not 42.
"""

from env_server.verifier.columns import column_order
from env_server.verifier.gold import Gold
from env_server.verifier.order import TieQuery, is_ordered
from env_server.verifier.reading import bare_texts
from env_server.verifier.standards import (
    STANDARDS,
    TRAINING_STANDARD,
    Standard,
    answer_verdicts,
    result_verdicts,
)
from env_server.verifier.text import verify

__all__ = [
    "STANDARDS",
    "TRAINING_STANDARD",
    "VERIFIER_VERSION",
    "Gold",
    "Standard",
    "TieQuery",
    "answer_verdicts",
    "bare_texts",
    "column_order",
    "is_ordered",
    "result_verdicts",
    "verify",
]

VERIFIER_VERSION = "3"
