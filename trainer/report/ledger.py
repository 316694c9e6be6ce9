"""The reward ledger of recorded episodes: its three layers, and the parts of the operational one.
Pure functions.

A run keeps each episode's three rewards, not the parts of each step. The parts follow from what the
episode shows: which action failed, which was taken before, which showed a text that was not shown
before. So they are worked out again here, and `agreeing` says of how many episodes the parts add up
to the recorded operational reward.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.actions import ActionType, normalise
from trainer.config import REWARD_WEIGHTS
from trainer.run.records import EpisodeRecord

# Reward version -> the amounts of the operational parts. The server's own table is
# env_server/rewards.py; a test holds the two together. Of any other version only the layers are
# shown.
AMOUNTS: dict[str, dict[str, float]] = {
    "1": {"step_cost": -0.02, "exec_ok": 0.02, "new_info": 0.01, "repeat": -0.03}
}
STEP_BOUNDS, SUM_BOUNDS = (-0.10, 0.15), (-0.25, 0.05)
CLAMP = "clamp"
LAYERS = ("correctness", "progress", "operational")

ERROR = "Error: "
_BUDGET = re.compile(r"\n?Steps left: -?\d+\Z")


@dataclass(frozen=True)
class Ledger:
    """Mean rewards an episode over `n` finished episodes, in reward units: the layers as weighted,
    and their sum.

    `parts` are the operational layer's, empty where they can't be told; `agreeing` of the n
    episodes' parts add up.
    """

    n: int
    layers: Mapping[str, float]
    total: float
    parts: Mapping[str, float]
    agreeing: int


def ledger(episodes: Sequence[EpisodeRecord], reward_version: str) -> Ledger | None:
    """The mean ledger of the episodes that were not lost; None where there are none."""
    played = [one for one in episodes if one.finished and one.reward is not None]
    if not played:
        return None
    layers = {
        name: sum(weight * (getattr(one, name) or 0.0) for one in played) / len(played)
        for name, weight in zip(LAYERS, REWARD_WEIGHTS, strict=True)
    }
    parts: Counter[str] = Counter()
    agreeing = 0
    amounts = AMOUNTS.get(reward_version)
    if amounts:
        for one in played:
            found = operational_parts(one, amounts)
            agreeing += abs(sum(found.values()) - (one.operational or 0.0)) < 1e-6
            parts.update(found)
    return Ledger(
        n=len(played),
        layers=layers,
        total=sum(one.reward or 0.0 for one in played) / len(played),
        parts={name: parts[name] / len(played) for name in (*amounts, CLAMP)} if amounts else {},
        agreeing=agreeing,
    )


def operational_parts(episode: EpisodeRecord, amounts: Mapping[str, float]) -> dict[str, float]:
    """Part -> what it paid over the whole episode. `clamp` is what the bounds gave back or took."""
    paid: dict[str, Any] = dict.fromkeys((*amounts, CLAMP), 0.0)
    taken: set[str] = set()
    shown: set[str] = set()
    total = 0.0
    # a turn that was not answered paid nothing
    for turn, action in zip(episode.turns, episode.actions, strict=False):
        text, key = result_text(turn.observation), normalise(action)
        failed = text.startswith(ERROR)
        fresh = not failed and text not in shown and not action.startswith(f"{ActionType.ANSWER}:")
        earned = {
            "step_cost": True,
            "exec_ok": not failed,
            "new_info": fresh,
            "repeat": key in taken,
        }
        taken.add(key)
        if not failed:
            shown.add(text)
        wanted = 0.0
        for name, so in earned.items():
            if so:
                paid[name] += amounts[name]
                wanted += amounts[name]
        after = _clamped(total + _clamped(wanted, STEP_BOUNDS), SUM_BOUNDS)
        paid[CLAMP] += after - total - wanted
        total = after
    return paid


def result_text(observation: str) -> str:
    """An observation's text without its last line, which says the steps that are left."""
    return _BUDGET.sub("", observation)


def _clamped(value: float, bounds: tuple[float, float]) -> float:
    return round(min(max(value, bounds[0]), bounds[1]), 6)
