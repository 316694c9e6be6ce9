"""Public name of `trainer.rollout.rewards`."""

from trainer.rollout.rewards import reward_correctness, reward_operational, reward_progress

__all__ = ["reward_correctness", "reward_operational", "reward_progress"]
