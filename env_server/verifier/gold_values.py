"""The values of a gold answer's cells, and which of them a text may stand for."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

from env_server.render import one_line
from env_server.verifier.gold import Gold
from env_server.verifier.layouts import Shape
from shared.answers.cells import BOOLEANS, NULLS, Read, Scalar, folded, plain, unquote, visible
from shared.answers.dates import iso_moment
from shared.answers.numbers import FLOAT_TOLERANCE, is_value, read_number, rounding

# Different cells of one answer that are read as numbers with units, dates and so on: 10 us each.
# Further ones must be the gold's own text.
MAX_LOOSE_CELLS = 200
MAX_NEAR = 200  # floats that a rounded number may stand for
MAX_REPEATED_ROWS = 100  # more rows than the gold has; only BIRD's standard takes any

Fits = tuple[frozenset[int], int]  # the values that a cell may be, and the likeliest
IdRow = tuple[int, ...]
_NOTHING: Fits = (frozenset(), -1)


class GoldValues:
    """A gold's rows as numbers of their values, so that comparing cells is comparing integers.

    Texts that differ in case, space, quotes or the form of a date are one value, as are 1 and 1.0.
    """

    def __init__(self, gold: Gold) -> None:
        self.words = gold.words
        rows = [row for block in gold.blocks for row in block.rows]
        cells: set[Scalar] = {cell for row in (*gold.rows, *rows) for cell in row}
        floats = {cell for cell in cells if isinstance(cell, float)}
        self._floats = sorted(floats)  # whose numbers are their places
        self._numbers: dict[float, int] = {cell: i for i, cell in enumerate(self._floats)}
        for cell in cells:
            if isinstance(cell, int):
                self._numbers.setdefault(cell, len(self._numbers))
        self._null = len(self._numbers) if None in cells else -1
        self._texts: dict[str, int] = {}
        self._moments: dict[datetime, int] = {}
        self._next = len(self._numbers) + 1
        texts = [cell for cell in cells if isinstance(cell, str)]
        self._raw = {text: self._number_text(text) for text in sorted(texts)}
        # where two texts fold to one, none of them is it
        self._folded: dict[str, int | None] = {}
        for name, number in self._texts.items():
            same = self._folded.setdefault(folded(name), number) == number
            self._folded[folded(name)] = number if same else None
        # white space and combining characters may make a text longer than what it stands for
        self._max_chars = 4 * max(map(len, texts), default=0) + 200
        self._own = {visible(str(cell)): self.number_of(cell) for cell in cells if cell is not None}
        self.rows = self.number_rows(gold.rows)
        self.blocks = [(block.take, self.number_rows(block.rows)) for block in gold.blocks]
        columns = zip(*self.rows, *(row for _, rows in self.blocks for row in rows), strict=False)
        self.columns = [frozenset(column) for column in columns]
        many = gold.answer_type in ("list", "table")
        self.shape = Shape(
            kind=gold.answer_type,
            min_rows=len(set(self.rows)),
            max_rows=len(self.rows) + (MAX_REPEATED_ROWS if many and self.rows else 0),
            widths=frozenset(map(len, self.rows)),
            numeric=tuple(
                place
                for place, column in enumerate(zip(*gold.rows, strict=False))
                if all(isinstance(cell, int | float) for cell in column)
            ),
        )

    def number_of(self, cell: Scalar) -> int:
        if cell is None:
            return self._null
        return self._raw[cell] if isinstance(cell, str) else self._numbers[cell]

    def number_rows(self, rows: Iterable[Sequence[Scalar]]) -> list[IdRow]:
        return [tuple(map(self.number_of, row)) for row in rows]

    def _number_text(self, text: str) -> int:
        name = plain(text)
        number = self._texts.get(name, self._next)
        if (moment := iso_moment(visible(text).strip())) is not None:
            number = self._moments.setdefault(moment, number)
        self._texts[name] = number
        self._texts.setdefault(plain(one_line(text)), number)  # as the environment shows it
        self._next = max(self._next, number + 1)
        return number

    def fits(self, text: Read) -> Fits:
        """Return the values that a cell may be, none or several, and the likeliest of them."""
        if text is None:
            return self._null_fits()
        if len(text) > self._max_chars:
            return _NOTHING
        found: list[int] = []  # likeliest first
        name = plain(text)
        if name in NULLS and self._null >= 0:
            found.append(self._null)
        stripped = visible(text).strip()
        unquoted = unquote(stripped)
        if self._numbers:
            found += self._near(unquoted) or self._near(unquote(stripped.removesuffix(".")))
        if self._texts:
            stopped = plain(unquote(stripped.removesuffix(".")))
            names = [name, plain(unquoted)] + ([] if stopped.endswith(".") else [stopped])
            found += [self._texts[one] for one in names if one in self._texts]
            if not found:
                alike = [self._folded.get(folded(one)) for one in names]
                found += [one for one in alike if one is not None]
            if (moment := iso_moment(unquoted)) is not None and moment in self._moments:
                found.append(self._moments[moment])
        return (frozenset(found), found[0]) if found else _NOTHING

    def own(self, text: Read) -> Fits:
        """Return the value that has this very text, for cells beyond `MAX_LOOSE_CELLS`."""
        if text is None:
            return self._null_fits()
        number = self._own.get(visible(text))
        return _NOTHING if number is None else (frozenset((number,)), number)

    def _null_fits(self) -> Fits:
        return _NOTHING if self._null < 0 else (frozenset((self._null,)), self._null)

    def _near(self, unquoted: str) -> list[int]:
        """Return the gold's numbers that a text is, the nearest first."""
        given = read_number(unquoted, self.words)
        if given is None:
            truth = BOOLEANS.get(unquoted.casefold())
            return [] if truth is None or truth not in self._numbers else [self._numbers[truth]]
        same = self._numbers.get(given)  # type: ignore[call-overload]  # equal numbers hash alike
        near = self._rounded(given)
        if same is not None:
            return [same, *near]
        if not near:
            return []
        place = bisect_left(self._floats, given, near.start, near.stop)
        around = self._floats[max(place - 1, near.start) : min(place + 1, near.stop)]
        likeliest = min(around, key=lambda one: abs(one - float(given)))
        return [self._numbers[likeliest], *near]

    def _rounded(self, given: Decimal) -> range:
        """Return the places of the floats that a number is: they are neighbours."""
        about, floats = float(given), self._floats
        if not (floats and math.isfinite(about)):
            return range(0)
        reach = FLOAT_TOLERANCE * abs(about)
        if (half_unit := rounding(given)) is not None:
            reach = max(reach, float(half_unit))
        reach *= 1 + 4 * FLOAT_TOLERANCE  # at least what `is_value` allows
        first, end = bisect_left(floats, about - reach), bisect_right(floats, about + reach)
        while first < end and not is_value(given, floats[first]):
            first += 1
        while end > first and not is_value(given, floats[end - 1]):
            end -= 1
        return range(first, min(end, first + MAX_NEAR))


values_of = lru_cache(256)(GoldValues)


class Cells:
    """Reads the cells of one answer, in all its readings: each text once."""

    def __init__(self, values: GoldValues) -> None:
        self.values = values
        self._read: dict[Read, Fits] = {}

    def read(self, rows: Sequence[Sequence[Read]]) -> list[list[Fits]] | None:
        """Return what each cell may be; None if one is no value of the gold."""
        found: list[list[Fits]] = []
        for row in rows:
            if len(row) not in self.values.shape.widths:
                return None
            found.append([])
            for cell in row:
                fits = self._fits(cell)
                if not fits[0]:
                    return None
                found[-1].append(fits)
        return found

    def _fits(self, cell: Read) -> Fits:
        fits = self._read.get(cell)
        if fits is None:
            loose = len(self._read) < MAX_LOOSE_CELLS
            fits = self._read[cell] = (self.values.fits if loose else self.values.own)(cell)
        return fits
