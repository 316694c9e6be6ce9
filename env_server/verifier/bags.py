"""Can these rows be paired with those, one to one?"""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

# comparisons of rows that have no partner of an equal key: 200 rows with as many
MAX_UNLIKE_PAIRS = 40_000

A = TypeVar("A")
B = TypeVar("B")


def can_pair(
    rows: Sequence[A],
    others: Sequence[B],
    same: Callable[[A, B], bool],
    key: Callable[[A], Hashable],
    other_key: Callable[[B], Hashable],
) -> bool:
    """Whether every one of `rows` can have one of `others` of its own, `same` as it.

    Rows of equal keys are taken for partners at once; only the rest is compared each with each.
    False where that rest is over `MAX_UNLIKE_PAIRS`.
    """
    if len(rows) == len(others) == 1:  # most answers
        return same(rows[0], others[0])
    exact: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        exact.setdefault(key(row), []).append(index)
    unlike = []
    for other in others:
        partners = exact.get(other_key(other))
        if partners:
            partners.pop()
        else:
            unlike.append(other)
    left = [rows[index] for indices in exact.values() for index in indices]
    if len(left) > len(unlike) or len(left) * len(unlike) > MAX_UNLIKE_PAIRS:
        return False
    fits = []
    for row in left:
        fits.append([index for index, other in enumerate(unlike) if same(row, other)])
        if not fits[-1]:
            return False
    return _can_match(fits)


def _can_match(fits: list[list[int]]) -> bool:
    """Whether each row can have a partner of its own among those that fit it (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for index in fits[row]:
            if index not in tried:
                tried.add(index)
                if index not in owner or place(owner[index], tried):
                    owner[index] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(fits)))
