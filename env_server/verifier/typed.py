"""An answer's cells as the gold's own values, so that a standard made for SQL results can judge a
text."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from env_server.verifier.cells import BOOLEANS, NULLS, Read, Scalar, iso_moment, plain, unquote
from env_server.verifier.numbers import is_value, read_number

Typed = tuple[Scalar, ...]


class _Missing:
    pass


MISSING: Final = _Missing()


class Typing:
    """`rows`: the gold's, texts that are the same to `same_cell` by one name. `read` gives an
    answer's by those names.

    A number that fits two values of the gold is the nearer one.
    """

    def __init__(self, rows: Sequence[Typed], words: frozenset[str]) -> None:
        self.words = words
        self._texts: dict[str, str] = {}
        self._moments: dict[datetime, str] = {}
        numbers = {cell for row in rows for cell in row if isinstance(cell, int | float)}
        self._numbers = sorted(numbers)
        self._has_null = any(cell is None for row in rows for cell in row)
        self.rows = [
            tuple(self._named(cell) if isinstance(cell, str) else cell for cell in row)
            for row in rows
        ]

    def read(self, rows: Sequence[Sequence[Read]]) -> list[Typed] | None:
        """The rows of an answer, or None where a cell is none of the gold's: then no standard takes
        them."""
        typed: list[Typed] = []
        for row in rows:
            cells: list[Scalar] = []
            for text in row:
                value = self._value(text)
                if isinstance(value, _Missing):
                    return None
                cells.append(value)
            typed.append(tuple(cells))
        return typed

    def _named(self, text: str) -> str:
        name = self._texts.setdefault(plain(text), text)
        moment = iso_moment(text.strip())
        return name if moment is None else self._moments.setdefault(moment, name)

    def _value(self, text: Read) -> Scalar | _Missing:
        if text is None or (self._has_null and plain(text) in NULLS):
            return None if self._has_null else MISSING
        bare = unquote(text.strip())
        value = self._number(bare)
        return self._text(text, bare) if isinstance(value, _Missing) else value

    def _number(self, bare: str) -> Scalar | _Missing:
        if not self._numbers:
            return MISSING
        given = read_number(bare, self.words)
        if given is None:
            truth = BOOLEANS.get(bare.casefold())
            return MISSING if truth is None or truth not in self._numbers else truth
        at = bisect_left(self._numbers, given)
        near = sorted(
            self._numbers[max(at - 1, 0) : at + 1],
            key=lambda number: abs(float(number) - float(given)),
        )
        return next((number for number in near if is_value(given, number)), MISSING)

    def _text(self, text: str, bare: str) -> Scalar | _Missing:
        for form in (text, bare, unquote(text.strip().removesuffix("."))):
            name = self._texts.get(plain(form))
            if name is not None:
                return (
                    self._moments.get(moment, name)
                    if (moment := iso_moment(name.strip()))
                    else name
                )
        moment = iso_moment(bare)
        return MISSING if moment is None else self._moments.get(moment, MISSING)
