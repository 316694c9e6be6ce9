"""The G rollouts of one question in one training step, with the advantages that GRPO gave them.

Advantages are not recorded. They follow from the rewards by TRL's formula: `A = (r - group mean) /
(s + 1e-4)`, where s is the standard deviation of the group or of the whole generation batch, as
`scale_rewards` says. A lost episode counts in neither and has the advantage 0; so has, with
`skip_one_verdict_groups`, every episode of a group with one verdict.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shared.models import Outcome

Row = Mapping[str, Any]  # a line of episodes.jsonl
EPSILON = 1e-4  # TRL's, against a standard deviation of 0


@dataclass(frozen=True)
class Group:
    """One question's rollouts in a step, and the advantage of each; None if not known."""

    step: int
    question_id: str
    rollouts: Sequence[Row]
    advantages: Sequence[float | None]

    @property
    def correct(self) -> int:
        return sum(row.get("outcome") == Outcome.CORRECT for row in self.rollouts)

    @property
    def contrast(self) -> bool:
        """Whether some rollouts are correct and some finished ones are not."""
        finished = sum(row.get("reward") is not None for row in self.rollouts)
        return 0 < self.correct < finished

    @property
    def mean(self) -> float | None:
        rewards = [row["reward"] for row in self.rollouts if row.get("reward") is not None]
        return sum(rewards) / len(rewards) if rewards else None


def chosen_steps(steps: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of the sorted steps: the first, the last, and some evenly between."""
    if count >= len(steps):
        return list(steps)
    gap = (len(steps) - 1) / max(1, count - 1)
    return [steps[round(place * gap)] for place in range(count)]


def groups(
    step: int, rows: Sequence[Row], size: int, scale_rewards: str, skip_one_verdict: bool = False
) -> list[Group]:
    """Cut a generation batch into groups: the rows of a question, in order, `size` in each.

    `scale_rewards` and `skip_one_verdict` are the settings of training.
    """
    by_question: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_question.setdefault(str(row.get("question_id")), []).append(index)
    members = [
        (question, places[start : start + size])
        for question, places in by_question.items()
        for start in range(0, len(places), max(1, size))
    ]
    rewards = [row.get("reward") for row in rows]
    values = advantages(rewards, [places for _, places in members], scale_rewards)
    found = []
    for question, places in members:
        group = Group(step, question, [rows[i] for i in places], [values[i] for i in places])
        if skip_one_verdict and not group.contrast:
            group = replace(group, advantages=[0.0] * len(places))
        found.append(group)
    return found


def advantages(
    rewards: Sequence[float | None], members: Sequence[Sequence[int]], scale_rewards: str
) -> list[float | None]:
    """Return one advantage per reward. `members` are the indices of each group.

    `scale_rewards` is group, batch or none; for another one every advantage is None.
    """
    if scale_rewards not in ("group", "batch", "none"):
        return [None] * len(rewards)
    values: list[float | None] = [0.0] * len(rewards)
    batch_deviation = _deviation([reward for reward in rewards if reward is not None])
    for places in members:
        known = [reward for place in places if (reward := rewards[place]) is not None]
        mean = sum(known) / len(known) if known else 0.0
        scale = 1.0
        if scale_rewards != "none":
            deviation = _deviation(known) if scale_rewards == "group" else batch_deviation
            scale = deviation + EPSILON
        for place in places:
            reward = rewards[place]
            values[place] = 0.0 if reward is None else (reward - mean) / scale
    return values


def _deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; 0 for a single value, whose advantage is 0 anyway."""
    return statistics.stdev(values) if len(values) > 1 else 0.0
