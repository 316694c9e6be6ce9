"""What a step pays: pure functions from what happened to a ledger of named parts.

    operational     is the step well made?          running sum in [-0.25, 0.05]
    progress        is a QUERY near the gold?       0.15 x the best potential so far, in [0, 0.15]
    correctness     is the ANSWER right?            1 or 0

So a correct episode pays at least 0.75 and any other at most 0.20. All amounts are whole
millionths, so sums are exact after rounding and replays are equal to the byte.

The amounts are those of `REWARD_VERSION`. `VERSIONS` has others beside it, by which recorded
episodes can be scored again (`python -m env_server rescore`); no server pays by them.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.models import RewardLedger

# The operational parts: name -> (amount, when a step earns it).
OPERATIONAL: dict[str, tuple[float, str]] = {
    "exec_ok": (
        0.02,
        "the action was carried out without an error; a well-formed ANSWER always is",
    ),
    "new_info": (
        0.01,
        "it succeeded and showed a result text that this episode had not shown before",
    ),
    "repeat": (
        -0.03,
        "the same action was taken before in this episode, as `shared.actions.normalise` sees it",
    ),
    "step_cost": (-0.02, "every step"),
}


@dataclass(frozen=True)
class RewardRules:
    """The amounts of one version, in reward units. `operational` pays by the names of
    `OPERATIONAL`."""

    operational: Mapping[str, float] = field(
        default_factory=lambda: {name: pay for name, (pay, _) in OPERATIONAL.items()}
    )
    step_bounds: tuple[float, float] = (-0.10, 0.15)
    sum_bounds: tuple[float, float] = (-0.25, 0.05)
    progress_weight: float = 0.15
    correct: float = 1.0

    @property
    def least_correct(self) -> float:
        """The least that a correct episode pays."""
        return _round(self.sum_bounds[0] + self.correct)

    @property
    def most_incorrect(self) -> float:
        """The most that any other episode pays."""
        return _round(self.sum_bounds[1] + self.progress_weight)

    def weighted(self, ledger: RewardLedger) -> float:
        """The ledger's total as a trainer sums it, from correctness, final potential and
        operational, not rounded."""
        return ledger.correctness + self.progress_weight * ledger.potential + ledger.operational


REWARD_VERSION = "1"
VERSIONS: dict[str, RewardRules] = {
    REWARD_VERSION: RewardRules(),
    # correctness alone
    "sparse": RewardRules(operational={}, sum_bounds=(0.0, 0.0), progress_weight=0.0),
}
RULES = VERSIONS[REWARD_VERSION]

CARDINALITY_WEIGHT, OVERLAP_WEIGHT, RANGE_WEIGHT = 0.25, 0.50, 0.25

Row = Sequence[object]


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What happened in a step, as far as rewards go. `potential` is a QUERY's own, else 0."""

    exec_ok: bool
    new_info: bool
    repeat: bool
    potential: float = 0.0
    correct: bool = False


EMPTY_LEDGER = RewardLedger(
    step={}, operational=0.0, progress=0.0, correctness=0.0, potential=0.0, total=0.0
)


def settle(
    ledger: RewardLedger, facts: StepFacts, rules: RewardRules = RULES
) -> tuple[float, RewardLedger]:
    """-> the step's reward and the ledger after it. `clamp` is the part that the bounds take back."""
    earned = {
        "exec_ok": facts.exec_ok,
        "new_info": facts.new_info,
        "repeat": facts.repeat,
        "step_cost": True,
    }
    parts = {
        name: rules.operational[name]
        for name, so in earned.items()
        if so and name in rules.operational
    }
    wanted = _round(sum(parts.values()))
    operational = _round(
        _clamp(ledger.operational + _clamp(wanted, rules.step_bounds), rules.sum_bounds)
    )
    if clamped := _round(operational - ledger.operational - wanted):
        parts["clamp"] = clamped
    potential = max(ledger.potential, facts.potential)
    progress = _round(rules.progress_weight * potential)
    if progress > ledger.progress:
        parts["progress"] = _round(progress - ledger.progress)
    if facts.correct:
        parts["correctness"] = rules.correct
    reward = _round(sum(parts.values()))
    return reward, RewardLedger(
        step=parts,
        operational=operational,
        progress=progress,
        correctness=rules.correct if facts.correct else ledger.correctness,
        potential=potential,
        total=_round(ledger.total + reward),
    )


def potential(
    rows: Sequence[Row], truncated: bool, gold: Sequence[Row], reads_tables: bool
) -> float:
    """How near a QUERY's rows are to the gold rows: [0, 1], to four decimals.

    cardinality     the smaller number of rows over the larger
    value overlap   Jaccard index of the two bags of cells, columns' order and names aside
    numeric range   how near the least and the greatest number of the one are to those of the other

    Where the gold holds no number, the other two share the range's weight in proportion. Nothing is
    paid for a query that reads no table (`SELECT 1`), nor for cardinality where there are more rows
    than were fetched.
    """
    if not rows or not gold or not reads_tables:
        return 0.0
    cardinality = 0.0 if truncated else min(len(rows), len(gold)) / max(len(rows), len(gold))
    overlap = _overlap(rows, gold)
    in_range = _range(rows, gold)
    if in_range is None:
        score = (CARDINALITY_WEIGHT * cardinality + OVERLAP_WEIGHT * overlap) / (
            CARDINALITY_WEIGHT + OVERLAP_WEIGHT
        )
    else:
        score = (
            CARDINALITY_WEIGHT * cardinality + OVERLAP_WEIGHT * overlap + RANGE_WEIGHT * in_range
        )
    return round(score, 4) + 0.0


def _overlap(rows: Sequence[Row], gold: Sequence[Row]) -> float:
    ours = Counter(_key(cell) for row in rows for cell in row)
    theirs = Counter(_key(cell) for row in gold for cell in row)
    return (ours & theirs).total() / (ours | theirs).total()


def _range(rows: Sequence[Row], gold: Sequence[Row]) -> float | None:
    """None where the gold holds no number."""
    theirs = _numbers(gold)
    if not theirs:
        return None
    ours = _numbers(rows)
    if not ours:
        return 0.0
    return (_nearness(min(ours), min(theirs)) + _nearness(max(ours), max(theirs))) / 2


def _numbers(rows: Sequence[Row]) -> list[float]:
    return [
        float(cell)
        for row in rows
        for cell in row
        if isinstance(cell, int | float) and math.isfinite(cell)
    ]


def _nearness(ours: float, theirs: float) -> float:
    """1 where equal, falling to 0 at a difference as large as the gold's own size (at least 1)."""
    return max(0.0, 1.0 - abs(ours - theirs) / max(abs(theirs), 1.0))


def _key(cell: object) -> object:
    """Equal for cells that count as one value: 1 and 1.0, floats that differ in their last digits."""
    if isinstance(cell, float) and math.isfinite(cell):
        return float(f"{cell:.9g}")
    return cell.strip() if isinstance(cell, str) else cell


def _clamp(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _round(value: float) -> float:
    """To millionths; never -0.0, which prints otherwise than 0.0."""
    return round(value, 6) + 0.0
