"""What a step pays: pure functions from what happened to a ledger of named parts.

    operational     is the step well made?          running sum in [-0.25, 0.05]
    progress        is a QUERY near the gold?       0.15 x the best potential so far, in [0, 0.15]
    correctness     is the ANSWER right?            1 or 0

So a correct episode pays at least 0.75, any other at most 0.20. All amounts are whole millionths.
Recorded episodes can be rescored by other `VERSIONS`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import fsum, isfinite
from typing import Any, NamedTuple

from shared.models import RewardLedger

# The amounts of the operational parts.
OPERATIONAL: Mapping[str, float] = {
    "exec_ok": 0.02,  # the action succeeded; a well-formed ANSWER always does
    "new_info": 0.01,  # it succeeded and its result text is new in this episode
    "repeat": -0.03,  # the episode took the same action before, by `episode.comparable`
    "step_cost": -0.02,  # every step
}


@dataclass(frozen=True)
class RewardRules:
    """The amounts of one version, in reward units; `operational` by the names of `OPERATIONAL`."""

    operational: Mapping[str, float] = field(default_factory=lambda: OPERATIONAL)
    step_bounds: tuple[float, float] = (-0.10, 0.15)
    sum_bounds: tuple[float, float] = (-0.25, 0.05)
    progress_weight: float = 0.15
    correct: float = 1.0

    def weighted(self, ledger: RewardLedger) -> float:
        """Return the ledger's total as a trainer sums it, which is not rounded."""
        return ledger.correctness + self.progress_weight * ledger.potential + ledger.operational


REWARD_VERSION = "2"  # raise it when any step would pay another amount
VERSIONS: dict[str, RewardRules] = {
    REWARD_VERSION: RewardRules(),
    # correctness only
    "sparse": RewardRules(operational={}, sum_bounds=(0.0, 0.0), progress_weight=0.0),
}
RULES = VERSIONS[REWARD_VERSION]

CARDINALITY_WEIGHT, OVERLAP_WEIGHT, RANGE_WEIGHT = 0.25, 0.50, 0.25

Rows = Sequence[Sequence[object]]
_NUMBERS = frozenset((int, float))


class StepFacts(NamedTuple):
    """What happened in a step, as far as rewards go. `potential` is a QUERY's own, else 0."""

    exec_ok: bool
    new_info: bool
    repeat: bool
    potential: float = 0.0
    correct: bool = False


_LEDGER_FIELDS = set(RewardLedger.model_fields)
EMPTY_LEDGER = RewardLedger(
    step={}, operational=0.0, progress=0.0, correctness=0.0, potential=0.0, total=0.0
)


def settle(
    ledger: RewardLedger, facts: StepFacts, rules: RewardRules = RULES
) -> tuple[float, RewardLedger]:
    """Return a step's reward and the ledger after it."""
    parts = {
        name: amount
        for name, amount in rules.operational.items()
        if name == "step_cost" or getattr(facts, name)
    }
    wanted = _round(fsum(parts.values()))
    change = _clamp(wanted, *rules.step_bounds)
    operational = _round(_clamp(ledger.operational + change, *rules.sum_bounds))
    if clamped := _round(operational - ledger.operational - wanted):
        parts["clamp"] = clamped
    potential = max(ledger.potential, facts.potential)
    progress = _round(rules.progress_weight * potential)
    if progress > ledger.progress:
        parts["progress"] = _round(progress - ledger.progress)
    if facts.correct:
        parts["correctness"] = rules.correct
    reward = _round(fsum(parts.values()))
    after = RewardLedger(
        step=parts,
        operational=operational,
        progress=progress,
        correctness=rules.correct if facts.correct else ledger.correctness,
        potential=potential,
        total=_round(ledger.total + reward),
    )
    # one set for all ledgers: one of its own would be 728 bytes of an open episode
    object.__setattr__(after, "__pydantic_fields_set__", _LEDGER_FIELDS)
    return reward, after


class GoldCells:
    """What `potential` compares a result with, computed once from the gold rows."""

    __slots__ = ("bag", "cells", "ends", "rows")

    def __init__(self, rows: Rows) -> None:
        cells = list(chain.from_iterable(rows))
        self.rows, self.cells = len(rows), len(cells)  # their numbers
        self.bag, self.ends = Counter(_keys(cells)), _ends(cells)


def potential(rows: Rows, truncated: bool, gold: GoldCells, reads_data: bool) -> float:
    """Return how near a QUERY's rows are to the gold rows, in [0, 1], to four decimals.

    cardinality     the smaller number of rows divided by the larger; none for a truncated result
    value overlap   Jaccard index of the two bags of cells; column order and names don't count
    numeric range   how near the minimum and maximum are to those of the gold

    Without numbers in the gold, the other two share the range's weight in proportion. A query that
    neither reads a cell nor counts rows (`SELECT 1 FROM t`) gets 0.
    """
    if not rows or not gold.rows or not reads_data:
        return 0.0
    count = len(rows)
    cardinality = 0.0 if truncated else min(count, gold.rows) / max(count, gold.rows)
    cells = list(chain.from_iterable(rows))
    score = CARDINALITY_WEIGHT * cardinality + OVERLAP_WEIGHT * _overlap(cells, gold)
    if gold.ends is None:
        score /= CARDINALITY_WEIGHT + OVERLAP_WEIGHT
    elif (ends := _ends(cells)) is not None:
        score += RANGE_WEIGHT * sum(map(_nearness, ends, gold.ends)) / 2
    return round(score, 4) + 0.0


def _overlap(cells: list[Any], gold: GoldCells) -> float:
    bag = gold.bag
    found = Counter(filter(bag.__contains__, _keys(cells)))
    common = 0
    for key, count in found.items():
        common += min(count, bag[key])
    return common / (len(cells) + gold.cells - common)


def _ends(cells: list[Any]) -> tuple[float, float] | None:
    """Return the smallest and the largest finite number, or None if there is none."""
    numbers = [cell for cell in cells if type(cell) in _NUMBERS and isfinite(cell)]
    return (float(min(numbers)), float(max(numbers))) if numbers else None


def _nearness(value: float, gold: float) -> float:
    """Return 1 if equal, falling to 0 at a difference of the gold's own size (at least 1)."""
    return max(0.0, 1.0 - abs(value - gold) / max(abs(gold), 1.0))


def _keys(cells: list[Any]) -> list[Any]:
    """Return a key per cell, equal for cells that count as one value, such as 1 and 1.0."""
    return [
        cell.strip()
        if (kind := type(cell)) is str
        # sums that differ in their last digits are one value
        else float(f"{cell:.9g}")
        if kind is float and isfinite(cell)
        else cell
        for cell in cells
    ]


def _clamp(value: float, least: float, most: float) -> float:
    return least if value < least else min(value, most)


def _round(value: float) -> float:
    """Round to millionths, and -0.0 to 0.0, which prints differently."""
    return round(value, 6) + 0.0
