"""Which questions a limited measurement asks: the trainer chooses them, an audit checks them."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Cell = tuple[str, str]  # difficulty, database


def choose(rows: Sequence[T], limit: int, cell_of: Callable[[T], Cell]) -> list[T]:
    """Return `limit` of the rows, in their order; all for 0.

    Difficulties, databases and their combinations (cells) keep their shares: each place goes to the
    cell that is furthest below its shares by then. A cell's rows are drawn at random, as files are
    sorted by the form of their questions; always the same ones, so that runs compare.
    """
    if limit <= 0 or limit >= len(rows):
        return list(rows)
    cells: dict[Cell, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        cells[cell_of(row)].append(index)
    groups = {at: (("difficulty", at[0]), ("database", at[1]), ("cell", *at)) for at in cells}
    sizes = Counter(
        group for cell, members in cells.items() for group in groups[cell] for _ in members
    )
    taken: Counter[tuple[str, ...]] = Counter()
    for place in range(1, limit + 1):
        lack = {
            cell: sum(place * sizes[group] - len(rows) * taken[group] for group in groups[cell])
            for cell, members in cells.items()
            if taken["cell", *cell] < len(members)
        }
        taken.update(groups[max(lack, key=lambda cell: lack[cell])])
    stream = random.Random("subset")
    chosen = [
        index
        for cell, members in cells.items()
        for index in stream.sample(members, taken["cell", *cell])
    ]
    return [rows[index] for index in sorted(chosen)]
