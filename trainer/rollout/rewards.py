"""The reward functions that TRL calls: they return the server's own values.

`trainer.grpo.trl_config` weights them 1, 0.15 and 1, so that a row's reward is the total of the
server's ledger. None from all three, as for a lost episode, takes the row out of its group's
baseline and out of training.
"""

from collections.abc import Sequence
from typing import Any

Reward = float | None


def reward_correctness(*, correctness: Sequence[Reward], **_: Any) -> list[Reward]:
    """Return 1.0 for a correct ANSWER, else 0.0."""
    return list(correctness)


def reward_progress(*, progress: Sequence[Reward], **_: Any) -> list[Reward]:
    """Return the final potential, in [0, 1]: how close the best QUERY came to the gold."""
    return list(progress)


def reward_operational(*, operational: Sequence[Reward], **_: Any) -> list[Reward]:
    """Return the sum of step costs, repeats and errors, in [-0.25, 0.05]."""
    return list(operational)


REWARD_FUNCTIONS = (reward_correctness, reward_progress, reward_operational)
