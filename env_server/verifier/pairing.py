"""Match the rows of two results one to one, and the columns of two results."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

# comparisons between rows without a partner of equal key: 200 rows with 200
MAX_UNLIKE_PAIRS = 40_000
# rows looked at in one search for partners: 5 ms of the server's event loop
MAX_VISITS = 50_000
# Cells looked at again in one search of `column_order`: 5 ms of the server's event loop. Trying
# every order of 26 columns would never end.
MAX_CELLS = 5_000

Row = Sequence[Any]
Rows = Sequence[Row]
Order = list[int] | None


def can_pair(
    rows: Rows, others: Rows, same: Callable[[Any, Any], bool], key: Callable[[Row], Hashable]
) -> bool:
    """Return whether each of `rows` can be paired with a different one of `others`.

    Rows with equal keys are paired without comparison; of the rest, each pair is compared cell by
    cell by `same`. False if that takes more than `MAX_UNLIKE_PAIRS` comparisons.
    """
    exact: dict[Hashable, list[Row]] = {}
    for row in rows:
        exact.setdefault(key(row), []).append(row)
    unlike = []
    for other in others:
        if partners := exact.get(key(other)):
            partners.pop()
        else:
            unlike.append(other)
    left = [row for partners in exact.values() for row in partners]
    if len(left) > len(unlike) or len(left) * len(unlike) > MAX_UNLIKE_PAIRS:
        return False
    fits = []
    for row in left:
        fits.append([index for index, other in enumerate(unlike) if all(map(same, row, other))])
        if not fits[-1]:
            return False
    return _can_match(fits)


def can_fill(rows: Sequence[Sequence[frozenset[int]]], gold: Sequence[tuple[int, ...]]) -> bool:
    """Return whether each of `rows`, whose cells are sets of values, can have its own of `gold`;
    False if that takes a look at more than `MAX_UNLIKE_PAIRS` of the gold's rows."""
    left = Counter(gold)
    unclear = []
    for row in rows:
        if any(len(cell) != 1 for cell in row):
            unclear.append(row)
            continue
        only = tuple(value for (value,) in row)
        if not left[only]:
            return False
        left[only] -= 1
    if not unclear:
        return True
    others = list(left.elements())
    places = [defaultdict[int, list[int]](list) for _ in unclear[0]]  # of each column's values
    for place, other in enumerate(others):
        for column, value in zip(places, other, strict=True):
            column[value].append(place)
    seen, fits = 0, list[list[int]]()
    for row in unclear:
        chosen, cell = min(enumerate(row), key=lambda item: len(item[1]))
        found = [place for value in cell for place in places[chosen][value]]
        seen += len(found) + len(cell)
        if seen > MAX_UNLIKE_PAIRS:
            return False
        for index, cell in enumerate(row):
            if index != chosen:
                found = [place for place in found if others[place][index] in cell]
        if not found:
            return False
        fits.append(found)
    return _can_match(fits)


def _can_match(fits: list[list[int]]) -> bool:
    """Return whether every row can have its own partner among its `fits` (augmenting paths)."""
    owner: dict[int, int] = {}
    visits = 0

    def place(row: int, tried: set[int]) -> bool:
        nonlocal visits
        visits += len(fits[row])
        if visits > MAX_VISITS:
            return False
        for index in fits[row]:
            if index not in owner:
                owner[index] = row
                return True
        for index in fits[row]:
            if index not in tried:
                tried.add(index)
                if place(owner[index], tried):
                    owner[index] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))


def column_order(rows: Rows, gold: Rows, ordered: bool) -> Order:
    """Return `order`, such that column `order[j]` of `rows` is column j of `gold`, or None.

    Cells are compared as in Python (1 == 1.0, '1' != 1), rows by position if `ordered`, else as
    bags. A search that looks at more than `MAX_CELLS` cells a second time also ends with None; only
    tables with many columns of the same cells in different places take so long.
    """
    if len(rows) != len(gold):
        return None
    if not rows:
        return []
    width = len(gold[0])
    if any(len(row) != width for row in rows):
        return None
    columns, wanted = list(zip(*rows, strict=True)), list(zip(*gold, strict=True))
    if ordered:
        return _positions(columns, wanted)
    return _unordered(columns, wanted, MAX_CELLS + width * len(rows))


def _positions(columns: Rows, wanted: Rows) -> Order:
    left: dict[Row, list[int]] = {}
    for place, column in enumerate(columns):
        left.setdefault(column, []).append(place)
    order = [left[column].pop(0) for column in wanted if left.get(column)]
    return order if len(order) == len(wanted) else None


def _unordered(columns: Rows, wanted: Rows, max_cells: int) -> Order:
    """Assign the gold's columns one by one while the bags of the assigned parts of rows agree."""
    places = defaultdict[Hashable, list[int]](list)  # by the column's bag
    for place, column in enumerate(columns):
        places[frozenset(Counter(column).items())].append(place)
    fits = [places[frozenset(Counter(column).items())] for column in wanted]
    turns = sorted(range(len(wanted)), key=lambda column: len(fits[column]))
    order: dict[int, int] = {}
    cells_left = max_cells

    def assign(turn: int, labels: list[int], wanted_labels: list[int]) -> bool:
        """Assign the columns from `turn` on. Equal labels mark equal assigned parts of rows."""
        nonlocal cells_left
        if turn == len(turns):
            return True
        wanted_column = turns[turn]
        tried: set[Row] = set()
        for place in fits[wanted_column]:
            if place in order.values() or columns[place] in tried:
                cells_left -= 1
                continue
            cells_left -= len(labels)
            if cells_left < 0:
                return False
            tried.add(columns[place])
            names: dict[tuple[int, Any], int] = {}
            pairs = ((labels, columns[place]), (wanted_labels, wanted[wanted_column]))
            next_labels, next_wanted = (
                [names.setdefault(part, len(names)) for part in zip(old, cells, strict=True)]
                for old, cells in pairs
            )
            if Counter(next_labels) == Counter(next_wanted):
                order[wanted_column] = place
                if assign(turn + 1, next_labels, next_wanted):
                    return True
                del order[wanted_column]
        return False

    nothing = [0] * len(wanted[0])
    return [order[column] for column in range(len(wanted))] if assign(0, nothing, nothing) else None
