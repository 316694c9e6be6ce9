"""The reward functions that TRL calls. They pass on what the server's ledger says; None is an
episode that was lost.

`GRPOConfig.to_trl` weights them 1, 0.15 and 1, so that a row's reward is the total of its ledger. A
row that gets None from all three leaves its group's baseline and is not trained on.
"""

from collections.abc import Sequence
from typing import Any

Reward = float | None


def reward_correctness(*, correctness: Sequence[Reward], **_: Any) -> list[Reward]:
    """1.0 for a right ANSWER, else 0.0."""
    return _passed_on(correctness)


def reward_progress(*, progress: Sequence[Reward], **_: Any) -> list[Reward]:
    """The final potential, in [0, 1]: how near the best QUERY came to the gold."""
    return _passed_on(progress)


def reward_operational(*, operational: Sequence[Reward], **_: Any) -> list[Reward]:
    """The running sum of the operational parts, in [-0.25, 0.05]: step cost, repeats, errors."""
    return _passed_on(operational)


REWARD_FUNCTIONS = (reward_correctness, reward_progress, reward_operational)


def _passed_on(values: Sequence[Reward]) -> list[Reward]:
    return [None if value is None else float(value) for value in values]
