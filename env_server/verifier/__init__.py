"""Is an ANSWER the gold answer? Text is read in every form that models write; the comparison itself is strict.

    gold.py       `Gold`: a gold answer, and which other rows are the same answer
    order.py      where order counts, and where equal sort keys leave it open
    reading.py    an answer's text -> the rows that it may stand for
    cells.py      is this cell that value?
    numbers.py    numbers with separators and units
    bags.py       can these rows be paired with those?

An answer's type is the gold's. Values: 1 is 1.0; text is compared without letter case, outer white space, outer quotes
and a final full stop; NULL is NULL; a float is right where it is the gold rounded to as many decimals as it has, given
three significant digits or more. Lists and tables are bags: order counts only where the gold SQL's top level has ORDER
BY, and there not among rows of equal sort keys. Columns are compared by position. Whole texts are compared: 'It is 42'
is not 42.
"""

from functools import partial
from itertools import islice

from env_server.verifier.bags import can_pair
from env_server.verifier.cells import Read, same_row, text_key, value_key
from env_server.verifier.gold import Gold
from env_server.verifier.order import TieQuery, is_ordered
from env_server.verifier.reading import readings

__all__ = ["VERIFIER_VERSION", "Gold", "TieQuery", "is_ordered", "verify"]

VERIFIER_VERSION = "2"


def verify(answer_text: str, gold: Gold) -> bool:
    """Whether any reading of `answer_text` as the gold's type is the gold answer."""
    return any(_same_rows(rows, gold) for rows in readings(answer_text, gold.answer_type))


def _same_rows(rows: list[list[Read]], gold: Gold) -> bool:
    if len(rows) != len(gold.rows) or any(len(row) != len(right) for row, right in zip(rows, gold.rows, strict=True)):
        return False
    same = partial(same_row, words=gold.words)
    stretches = iter(rows)
    return all(
        can_pair(list(islice(stretches, block.take)), block.rows, same, text_key, value_key) for block in gold.blocks
    )
