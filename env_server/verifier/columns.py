"""In which order of its columns is one result the other?"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

Row = Sequence[Any]
# Cells looked at in one search, beside each once: 0.05 s of the server's event loop. To try each
# order in turn would take for ever at 26 columns.
MAX_CELLS = 50_000


def column_order(
    rows: Sequence[Row], gold: Sequence[Row], ordered: bool, most: int = MAX_CELLS
) -> list[int] | None:
    """`order`, so that column `order[j]` of `rows` is column j of `gold`; None where there is none.

    Cells are compared as Python does (1 is 1.0, '1' is not 1), rows by place where `ordered`, else
    as bags. A search that looks at more than `most` cells again ends with None too: only tables of
    columns that hold the same cells in other places, many times over, take one so long.
    """
    if len(rows) != len(gold):
        return None
    if not rows:
        return []
    width = len(gold[0])
    if any(len(row) != width for row in rows):
        return None
    ours, theirs = list(zip(*rows, strict=True)), list(zip(*gold, strict=True))
    if ordered:
        return _places(ours, theirs)
    return _Search(ours, theirs, most + width * len(rows)).run()


def _places(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[int] | None:
    left: dict[Hashable, list[int]] = {}
    for place, column in enumerate(ours):
        left.setdefault(column, []).append(place)
    found = [left[column].pop(0) if left.get(column) else None for column in theirs]
    return None if None in found else [place for place in found if place is not None]


class _Search:
    """Assigns the gold's columns one by one, as long as the bags of the rows' assigned parts are
    equal."""

    def __init__(self, ours: Sequence[Row], theirs: Sequence[Row], most: int) -> None:
        self.ours, self.theirs, self.left = ours, theirs, most
        bags = [frozenset(Counter(column).items()) for column in ours]
        wanted = [frozenset(Counter(column).items()) for column in theirs]
        self.fits = [[place for place, bag in enumerate(bags) if bag == want] for want in wanted]
        self.turns = sorted(range(len(theirs)), key=lambda column: len(self.fits[column]))
        self.order: dict[int, int] = {}

    def run(self) -> list[int] | None:
        height = len(self.theirs[0])
        if not self._assign(0, [0] * height, [0] * height):
            return None
        return [self.order[column] for column in range(len(self.theirs))]

    def _assign(self, turn: int, ours: list[int], theirs: list[int]) -> bool:
        """`ours[i]`, `theirs[i]`: a number for what is assigned of row i, equal for equal parts."""
        if turn == len(self.turns):
            return True
        column = self.turns[turn]
        tried: list[Row] = []
        for place in self.fits[column]:
            if place in self.order.values() or self.ours[place] in tried:
                continue
            self.left -= len(ours)
            if self.left < 0:
                return False
            tried.append(self.ours[place])
            names: dict[tuple[int, Any], int] = {}
            next_ours = [
                names.setdefault(part, len(names))
                for part in zip(ours, self.ours[place], strict=True)
            ]
            next_theirs = [
                names.setdefault(part, len(names))
                for part in zip(theirs, self.theirs[column], strict=True)
            ]
            if Counter(next_ours) == Counter(next_theirs):
                self.order[column] = place
                if self._assign(turn + 1, next_ours, next_theirs):
                    return True
                del self.order[column]
        return False
