"""Three standards of a right answer: ours, Spider's and BIRD's. Training uses ours.

    strict      columns by position, rows as a bag, in order where the gold's top level orders (ties aside)
    spider      columns in any order, rows as a bag, in order where the gold SQL holds the words 'order by'
    bird        columns by position, rows as a set: neither order nor duplicates count

Spider's and BIRD's compare cells as Python does; strict takes numbers for equal within 1e-6.
Spider's is the rule of the official test-suite evaluator with `--keep_distinct`, on one database. A
text's cells are first read as the gold's values, as strict reads them, then compared under the
standard.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any

from env_server.verifier.bags import can_pair
from env_server.verifier.cells import iso_moment
from env_server.verifier.columns import column_order
from env_server.verifier.gold import Gold
from env_server.verifier.reading import readings
from env_server.verifier.text import verify
from env_server.verifier.typed import Typing

Rows = Sequence[Sequence[Any]]  # of a SQL result: cells are int, float, str, bytes or None

TRAINING_STANDARD = "strict"
RESULT_TOLERANCE = 1e-6  # relative: how far numbers that two queries compute may differ
NEAR_ZERO = 1e-9  # absolute: the same where one of them is about 0


@dataclass(frozen=True, slots=True)
class Standard:
    """One rule of what is right. `rule` is a line for people.

    answer(text, gold)      is an ANSWER's text right?
    result(rows, gold)      is a SQL result right? The gold's ties must be known (`Gold.with_ties`) to count.
    """

    name: str
    rule: str
    answer: Callable[[str, Gold], bool]
    result: Callable[[Rows, Gold], bool]


def answer_verdicts(text: str, gold: Gold) -> dict[str, bool]:
    """Standard -> whether an ANSWER's text is right."""
    strict = verify(text, gold)
    # then it is right by every standard; the others take ten times as long
    if strict and _has_one_answer(gold):
        return dict.fromkeys(STANDARDS, True)
    return {
        name: strict if one.answer is verify else one.answer(text, gold)
        for name, one in STANDARDS.items()
    }


def result_verdicts(rows: Rows, gold: Gold) -> dict[str, bool]:
    """Standard -> whether a SQL result is right."""
    return {name: standard.result(rows, gold) for name, standard in STANDARDS.items()}


def _has_one_answer(gold: Gold) -> bool:
    """Whether rows that are right to strict are the gold's own, and in its order where Spider's
    standard wants it."""
    if gold.ordered:
        return all(len(block.rows) == 1 for block in gold.blocks)
    return all(block.take == len(block.rows) for block in gold.blocks) and not _order_by_words(gold)


# -- strict
# -----------------------------------------------------------------------------------------------------------


def _strict_result(rows: Rows, gold: Gold) -> bool:
    if len(rows) != len(gold.rows) or any(len(row) != len(gold.rows[0]) for row in rows):
        return False
    stretches = iter(rows)
    return all(
        can_pair(
            list(islice(stretches, block.take)), block.rows, _same_values, _value_key, _value_key
        )
        for block in gold.blocks
    )


def _same_values(row: Sequence[Any], gold: Sequence[Any]) -> bool:
    return all(map(_same_value, row, gold))


def _same_value(value: Any, gold: Any) -> bool:
    if isinstance(value, int | float) and isinstance(gold, int | float):
        if isinstance(value, int) and isinstance(gold, int):
            return value == gold
        return math.isclose(value, gold, rel_tol=RESULT_TOLERANCE, abs_tol=NEAR_ZERO)
    if isinstance(value, str) and isinstance(gold, str) and value != gold:
        moment = iso_moment(gold)
        return moment is not None and moment == iso_moment(value)
    return bool(value == gold)


def _value_key(row: Sequence[Any]) -> Hashable:
    """Equal for rows that are surely the same. Nine digits: sums that differ in their last ones are
    the same too."""
    return tuple(float(f"{cell:.9g}") if isinstance(cell, float) else cell for cell in row)


# -- Spider's and BIRD's
# ----------------------------------------------------------------------------------------------


def _spider_result(rows: Rows, gold: Gold) -> bool:
    return _spider_rows(list(map(tuple, rows)), gold.rows, gold)


def _spider_rows(rows: Rows, right: Rows, gold: Gold) -> bool:
    return column_order(rows, right, _order_by_words(gold)) is not None


def _order_by_words(gold: Gold) -> bool:
    return "order by" in gold.sql.lower()


def _bird_result(rows: Rows, gold: Gold) -> bool:
    return _bird_rows(list(map(tuple, rows)), gold.rows, gold)


def _bird_rows(rows: Rows, right: Rows, _gold: Gold) -> bool:
    return set(rows) == set(right)


@lru_cache(maxsize=1024)
def _typing(gold: Gold) -> Typing:
    return Typing(gold.rows, gold.words)


def _answer_under(same: Callable[[Rows, Rows, Gold], bool]) -> Callable[[str, Gold], bool]:
    def right(text: str, gold: Gold) -> bool:
        typing = _typing(gold)
        typed = map(typing.read, readings(text, gold.answer_type))
        return any(rows is not None and same(rows, typing.rows, gold) for rows in typed)

    return right


STANDARDS: Mapping[str, Standard] = MappingProxyType(
    {
        standard.name: standard
        for standard in (
            Standard("strict", "columns by position, bag of rows, order where the gold orders", verify, _strict_result),
            Standard(
                "spider", "columns in any order, bag of rows, 'order by' in the gold", _answer_under(_spider_rows),
                _spider_result,
            ),
            Standard("bird", "columns by position, set of rows", _answer_under(_bird_rows), _bird_result),
        )
    }
)  # fmt: skip
