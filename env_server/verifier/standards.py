"""Judge an answer, or a SQL result, by three standards. The setting `standard` chooses one.

    strict      columns by position, rows as a bag, ordered where the gold's top level orders, ties
                aside
    spider      columns in any order, rows as a bag, ordered if the gold SQL contains 'order by'
    bird        columns by position, rows as a set: neither order nor duplicates count

Of SQL results, Spider's and BIRD's compare cells as Python does; strict treats numbers within 1e-6
as equal. Spider's is the rule of the official test-suite evaluator with `--keep_distinct`, on one
database. Of texts, cells are read as the gold's values (`gold_values.py`): strict accepts any value
that a cell may be, the others the likeliest, or those that make the gold's own rows.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from env_server.verifier.gold import Gold
from env_server.verifier.gold_values import Cells, Fits, GoldValues, IdRow, values_of
from env_server.verifier.layouts import IsResult, readings
from env_server.verifier.pairing import can_fill, can_pair, column_order
from shared.answers.dates import iso_moment
from shared.models import StandardName

Rows = Sequence[Sequence[Any]]  # of a SQL result: cells are int, float, str, bytes or None
STRICT: StandardName = "strict"
RESULT_TOLERANCE = 1e-6  # relative: between numbers that two queries compute
NEAR_ZERO = 1e-9  # absolute: the same for numbers near 0


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of an answer's text: what each of its cells may be."""

    cells: list[list[Fits]]
    values: GoldValues
    gold: Gold

    @property
    def likeliest(self) -> list[IdRow]:
        """The rows with each cell as the likeliest value that it may be."""
        return [tuple(one for _, one in row) for row in self.cells]


@dataclass(frozen=True, slots=True)
class Standard:
    """A rule for what is right."""

    accepts: Callable[[Reading], bool]  # of one reading of an ANSWER
    result: Callable[[Rows, Gold], bool]  # of a SQL result; ties need `Gold.with_ties` first


def read_answer(text: str, gold: Gold, is_result: IsResult) -> Iterator[Reading]:
    """Yield the readings of a text whose cells are all values of the gold."""
    values = values_of(gold)
    cells = Cells(values)
    for rows in readings(text, values.shape, is_result):
        if (found := cells.read(rows)) is not None:
            yield Reading(found, values, gold)


def judge_answer(answer_text: str, gold: Gold) -> bool:
    """Return whether any reading of a text is the gold answer, by the strict standard."""
    return any(map(_strict_answer, read_answer(answer_text, gold, lambda _: False)))


def answer_verdicts(
    text: str, gold: Gold, is_result: IsResult = lambda _: False
) -> dict[str, bool]:
    """Return for each standard whether the text of an ANSWER is right; see `readings`."""
    verdicts = dict.fromkeys(STANDARDS, False)
    for reading in read_answer(text, gold, is_result):
        for name, standard in STANDARDS.items():
            verdicts[name] = verdicts[name] or standard.accepts(reading)
        if all(verdicts.values()):
            break
    return verdicts


def result_verdicts(rows: Rows, gold: Gold) -> dict[str, bool]:
    """Return for each standard whether a SQL result is right."""
    return {name: standard.result(rows, gold) for name, standard in STANDARDS.items()}


# -- strict


def _strict_answer(reading: Reading) -> bool:
    values = reading.values
    if len(reading.cells) != len(values.rows):
        return False
    cuts: dict[tuple[frozenset[int], int], frozenset[int]] = {}  # to the column's values

    def of_column(fits: frozenset[int], column: int) -> frozenset[int]:
        key = (fits, column)
        if key not in cuts:
            cuts[key] = fits & values.columns[column]
        return cuts[key]

    rows = (
        [of_column(fits, column) for column, (fits, _) in enumerate(row)] for row in reading.cells
    )
    return all(can_fill(list(islice(rows, take)), block) for take, block in values.blocks)


def _strict_result(rows: Rows, gold: Gold) -> bool:
    if list(map(len, rows)) != list(map(len, gold.rows)):
        return False
    rest = iter(rows)
    return all(
        can_pair(list(islice(rest, block.take)), block.rows, _same_value, _value_key)
        for block in gold.blocks
    )


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
    """Return a key that is equal only for rows that are the same; floats count to nine digits."""
    return tuple(float(f"{cell:.9g}") if isinstance(cell, float) else cell for cell in row)


# -- Spider's and BIRD's


def _spider(rows: Rows, right: Rows, gold: Gold) -> bool:
    return column_order(rows, right, _is_ordered(gold)) is not None


def _is_ordered(gold: Gold) -> bool:
    return "order by" in gold.sql.lower()


def _bird(rows: Rows, right: Rows, _gold: Gold) -> bool:
    return set(rows) == set(right)


def _fills(reading: Reading, *, ordered: bool) -> bool:
    """Return whether the cells may be the gold's rows, by position: two values may be rounded to
    one."""
    rows, right = [[fits for fits, _ in row] for row in reading.cells], reading.values.rows
    if list(map(len, rows)) != list(map(len, right)):
        return False
    if not ordered:
        return can_fill(rows, right)
    pairs = zip(chain.from_iterable(rows), chain.from_iterable(right), strict=True)
    return all(value in fits for fits, value in pairs)


def _other(
    same: Callable[[Rows, Rows, Gold], bool], is_ordered: Callable[[Gold], bool]
) -> Standard:
    return Standard(
        lambda reading: (
            same(reading.likeliest, reading.values.rows, reading.gold)
            or _fills(reading, ordered=is_ordered(reading.gold))
        ),
        lambda rows, gold: same(list(map(tuple, rows)), gold.rows, gold),
    )


STANDARDS: Mapping[str, Standard] = {
    STRICT: Standard(_strict_answer, _strict_result),
    "spider": _other(_spider, _is_ordered),
    "bird": _other(_bird, lambda gold: False),
}
