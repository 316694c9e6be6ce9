"""The mean reward ledger of recorded episodes: its layers, and the operational one's parts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.config import REWARD_WEIGHTS
from trainer.run.records import EpisodeRecord


@dataclass(frozen=True)
class MeanLedger:
    """Mean rewards per episode over `n` finished episodes: the layers as weighted, and their sum.

    `parts` are the operational layer's; empty for a run that did not record them.
    """

    n: int
    layers: Mapping[str, float]
    total: float
    parts: Mapping[str, float]


def mean_ledger(episodes: Sequence[EpisodeRecord]) -> MeanLedger | None:
    """Return the mean ledger of the episodes that were not lost; None if there are none."""
    played = [one for one in episodes if one.finished and one.reward is not None]
    n = len(played)
    if not n:
        return None
    layers = {
        name: sum(weight * (getattr(one, name) or 0.0) for one in played) / n
        for name, weight in REWARD_WEIGHTS.items()
    }
    parts: Counter[str] = Counter()
    if all(len(one.parts) == len(one.rewards) for one in played):
        for step in (step for one in played for step in one.parts):
            parts.update({name: paid for name, paid in step.items() if name not in REWARD_WEIGHTS})
    means = {name: paid / n for name, paid in parts.items()}
    return MeanLedger(n, layers, sum(one.reward or 0.0 for one in played) / n, means)
