"""The G rollouts of one question in one training step, with the advantages that GRPO gave them.
Pure functions.

Advantages are not recorded; they follow from the rewards as trl works them out: `A = (r - mean of
the group) / (s + 1e-4)`, with s the standard deviation of the group or of the whole generation
batch, as scale_rewards says. An episode that the infrastructure lost counts in neither and has the
advantage 0. That the rewards are those that trl saw is checked against the step's logged reward.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Row = Mapping[str, Any]  # a line of episodes.jsonl
EPSILON = 1e-4  # trl's, against a standard deviation of 0
MAX_STEPS = 16  # training steps of which groups are shown
MAX_GROUPS = 16  # of one step


@dataclass(frozen=True)
class Group:
    """One question's rollouts in a step. `advantages` are in the rollouts' order, None where
    nothing says how."""

    step: int
    question_id: str
    rollouts: Sequence[Row]
    advantages: Sequence[float | None]

    @property
    def right(self) -> int:
        return sum(row.get("outcome") == "correct" for row in self.rollouts)

    @property
    def contrast(self) -> bool:
        """Whether some rollouts are right and some are not."""
        return 0 < self.right < len(self.rollouts)

    @property
    def mean(self) -> float | None:
        rewards = [row["reward"] for row in self.rollouts if row.get("reward") is not None]
        return sum(rewards) / len(rewards) if rewards else None


def chosen_steps(steps: Sequence[int], count: int = MAX_STEPS) -> list[int]:
    """At most `count` of the steps, most wanted first: the first, the last, then whichever halves
    the widest gap."""
    steps = sorted(steps)
    if not steps:
        return []
    places = [0, len(steps) - 1] if len(steps) > 1 else [0]
    while len(places) < min(count, len(steps)):
        known = sorted(places)
        left, right = max(pairwise(known), key=lambda pair: pair[1] - pair[0])
        places.append((left + right) // 2)
    return [steps[place] for place in places[:count]]


def groups(step: int, rows: Sequence[Row], size: int, scale_rewards: str) -> list[Group]:
    """The groups of one generation batch: the rows of a question, in order, cut into `size` each."""
    by_question: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_question.setdefault(str(row.get("question_id")), []).append(index)
    cut = [
        (question, members[start : start + size])
        for question, members in by_question.items()
        for start in range(0, len(members), max(1, size))
    ]
    rewards = [row.get("reward") for row in rows]
    found = advantages(rewards, [members for _, members in cut], scale_rewards)
    return [
        Group(
            step, question, [rows[index] for index in members], [found[index] for index in members]
        )
        for question, members in cut
    ]


def advantages(
    rewards: Sequence[float | None], members: Sequence[Sequence[int]], scale_rewards: str
) -> list[float | None]:
    """An advantage a reward. `members` are the places of each group; `scale_rewards` is group,
    batch or none.

    None for every reward where the scaling is another one: then nothing here knows how.
    """
    if scale_rewards not in ("group", "batch", "none"):
        return [None] * len(rewards)
    found: list[float | None] = [0.0] * len(rewards)
    whole = _deviation([one for one in rewards if one is not None])
    for places in members:
        known = [one for one in (rewards[place] for place in places) if one is not None]
        if not known:
            continue
        mean = sum(known) / len(known)
        scale = {"group": _deviation(known) + EPSILON, "batch": whole + EPSILON, "none": 1.0}[
            scale_rewards
        ]
        for place in places:
            reward = rewards[place]
            found[place] = 0.0 if reward is None else (reward - mean) / scale
    return found


def _deviation(values: Sequence[float]) -> float:
    """The sample standard deviation; 0 of a single value, which has none and whose advantage is 0
    in trl too."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def agrees(rows: Sequence[Row], logged: Row | None, tolerance: float = 1e-4) -> bool | None:
    """Whether the rows' rewards are those of the step's log: same mean and deviation. None where it
    logged none.

    A log of several steps has their means, and can't be compared.
    """
    rewards = [float(row["reward"]) for row in rows if row.get("reward") is not None]
    mean, deviation = (logged or {}).get("reward"), (logged or {}).get("reward_std")
    if (
        mean is None
        or deviation is None
        or not rewards
        or (logged or {}).get("episodes") != len(rows)
    ):
        return None
    apart = (sum(rewards) / len(rewards) - mean, _deviation(rewards) - deviation)
    return all(abs(one) < tolerance for one in apart)
