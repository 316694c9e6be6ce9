"""Judge an answer, or a SQL result, by three standards. The setting `standard` chooses one.

    strict      columns by position, rows as a bag, ordered where the gold's top level orders, ties
                aside
    spider      columns in any order, rows as a bag, ordered if the gold SQL contains 'order by'
    bird        columns by position, rows as a set: neither order nor duplicates count

Spider's and BIRD's compare cells as Python does; strict treats numbers within 1e-6 as equal.
Spider's is the rule of the official test-suite evaluator with `--keep_distinct`, on one database. A
text's cells are first converted to the gold's values (`AnswerReader`), then compared.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from env_server.verifier.cells import (
    BOOLEANS,
    NULLS,
    Read,
    Scalar,
    is_value,
    iso_moment,
    plain,
    read_number,
    same_row,
    text_key,
    unquote,
    value_key,
)
from env_server.verifier.gold import Gold
from env_server.verifier.matching import can_pair, column_order
from env_server.verifier.reading import readings
from shared.models import StandardName

Rows = Sequence[Sequence[Any]]  # of a SQL result: cells are int, float, str, bytes or None
Typed = tuple[Scalar, ...]
SameRow = Callable[[Any, Any], bool]
RowKey = Callable[[Any], Hashable]

STRICT: StandardName = "strict"
RESULT_TOLERANCE = 1e-6  # relative: between numbers that two queries compute
NEAR_ZERO = 1e-9  # absolute: the same for numbers near 0


@dataclass(frozen=True, slots=True)
class Standard:
    """A rule for what is right. `rule` is one line for people.

    answer(text, gold)      whether the text of an ANSWER is right
    result(rows, gold)      whether a SQL result is right; ties need `Gold.with_ties` first
    """

    name: str
    rule: str
    answer: Callable[[str, Gold], bool]
    result: Callable[[Rows, Gold], bool]


def judge_answer(answer_text: str, gold: Gold) -> bool:
    """Return whether any reading of a text is the gold answer, by the strict standard."""
    return any(_strict_answer(rows, gold) for rows in readings(answer_text, gold.answer_type))


def answer_verdicts(text: str, gold: Gold) -> dict[str, bool]:
    """Return for each standard whether the text of an ANSWER is right."""
    strict = judge_answer(text, gold)
    # then it is right by every standard; the others take ten times as long
    if strict and _has_one_answer(gold):
        return dict.fromkeys(STANDARDS, True)
    return {
        name: strict if standard.answer is judge_answer else standard.answer(text, gold)
        for name, standard in STANDARDS.items()
    }


def result_verdicts(rows: Rows, gold: Gold) -> dict[str, bool]:
    """Return for each standard whether a SQL result is right."""
    return {name: standard.result(rows, gold) for name, standard in STANDARDS.items()}


def _has_one_answer(gold: Gold) -> bool:
    """Return whether strict accepts only the gold's own rows, in its order if Spider needs it."""
    if gold.ordered:
        return all(len(block.rows) == 1 for block in gold.blocks)
    return all(block.take == len(block.rows) for block in gold.blocks) and not _order_by_words(gold)


# -- strict


def _strict_answer(rows: list[list[Read]], gold: Gold) -> bool:
    return _same_blocks(rows, gold, partial(same_row, words=gold.words), text_key, value_key)


def _strict_result(rows: Rows, gold: Gold) -> bool:
    return _same_blocks(rows, gold, _same_values, _value_key, _value_key)


def _same_blocks(rows: Rows, gold: Gold, same: SameRow, key: RowKey, gold_key: RowKey) -> bool:
    if list(map(len, rows)) != list(map(len, gold.rows)):
        return False
    rest = iter(rows)
    return all(
        can_pair(list(islice(rest, block.take)), block.rows, same, key, gold_key)
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
    """Return a key that is equal only for rows that are the same; floats count to nine digits."""
    return tuple(float(f"{cell:.9g}") if isinstance(cell, float) else cell for cell in row)


# -- Spider's and BIRD's


def _order_by_words(gold: Gold) -> bool:
    return "order by" in gold.sql.lower()


def _spider_rows(rows: Rows, right: Rows, gold: Gold) -> bool:
    return column_order(rows, right, _order_by_words(gold)) is not None


def _bird_rows(rows: Rows, right: Rows, _gold: Gold) -> bool:
    return set(rows) == set(right)


SameRows = Callable[[Rows, Rows, Gold], bool]


def _result_under(same: SameRows) -> Callable[[Rows, Gold], bool]:
    return lambda rows, gold: same(list(map(tuple, rows)), gold.rows, gold)


def _answer_under(same: SameRows) -> Callable[[str, Gold], bool]:
    def right(text: str, gold: Gold) -> bool:
        reader = _answer_reader(gold)
        converted = map(reader.convert, readings(text, gold.answer_type))
        return any(rows is not None and same(rows, reader.rows, gold) for rows in converted)

    return right


@lru_cache(1024)
def _answer_reader(gold: Gold) -> "AnswerReader":
    return AnswerReader(gold.rows, gold.words)


class AnswerReader:
    """Converts an answer's cells to the gold's values, so that they can be compared as SQL results.

    `rows` are the gold's, with one name for all texts that `same_cell` treats as equal. A number
    that fits two values of the gold becomes the nearer one.
    """

    def __init__(self, rows: Sequence[Typed], words: frozenset[str]) -> None:
        self.words = words
        self._texts: dict[str, str] = {}
        self._moments: dict[datetime, str] = {}
        numbers = {cell for row in rows for cell in row if isinstance(cell, int | float)}
        self._numbers = sorted(numbers)
        self._has_null = any(cell is None for row in rows for cell in row)
        self.rows = [tuple(map(self._named, row)) for row in rows]

    def convert(self, rows: Sequence[Sequence[Read]]) -> list[Typed] | None:
        """Return the converted rows; None if a cell is not in the gold, so no standard matches."""
        try:
            return [tuple(map(self._value, row)) for row in rows]
        except LookupError:
            return None

    def _named(self, text: Scalar) -> Scalar:
        if not isinstance(text, str):
            return text
        name = self._texts.setdefault(plain(text), text)
        moment = iso_moment(text.strip())
        return name if moment is None else self._moments.setdefault(moment, name)

    def _value(self, text: Read) -> Scalar:
        """Return the gold's value that a cell is; raise `LookupError` if there is none."""
        if self._has_null and (text is None or plain(text) in NULLS):
            return None
        if text is not None:
            unquoted = unquote(text.strip())
            if (number := self._number(unquoted)) is not None:
                return number
            if (name := self._text(text, unquoted)) is not None:
                return name
        raise LookupError(text)

    def _number(self, unquoted: str) -> int | float | None:
        if not self._numbers:
            return None
        given = read_number(unquoted, self.words)
        if given is None:
            truth = BOOLEANS.get(unquoted.casefold())
            return truth if truth in self._numbers else None
        at = bisect_left(self._numbers, given)
        near = self._numbers[max(at - 1, 0) : at + 1]
        near.sort(key=lambda number: abs(float(number) - float(given)))
        return next((number for number in near if is_value(given, number)), None)

    def _text(self, text: str, unquoted: str) -> str | None:
        for form in (text, unquoted, unquote(text.strip().removesuffix("."))):
            name = self._texts.get(plain(form))
            if name is not None:
                moment = iso_moment(name.strip())
                return self._moments.get(moment, name) if moment else name
        moment = iso_moment(unquoted)
        return None if moment is None else self._moments.get(moment)


def _other(name: str, rule: str, same: SameRows) -> Standard:
    return Standard(name, rule, _answer_under(same), _result_under(same))


_STRICT_RULE = "columns by position, bag of rows, order where the gold orders"
_STANDARDS = (
    Standard(STRICT, _STRICT_RULE, judge_answer, _strict_result),
    _other("spider", "columns in any order, bag of rows, 'order by' in the gold", _spider_rows),
    _other("bird", "columns by position, set of rows", _bird_rows),
)
STANDARDS: Mapping[str, Standard] = {standard.name: standard for standard in _STANDARDS}
