"""A node id that the specification names; the tests are in `tests.trainer.rollout.test_rewards`."""

from tests.trainer.rollout.test_rewards import test_reward_correctness

__all__ = ["test_reward_correctness"]
