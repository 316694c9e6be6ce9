"""A node id that the specification names; the tests are in `tests.trainer.rollout`."""

from tests.trainer.rollout.test_rollout_func import test_reward_correctness

__all__ = ["test_reward_correctness"]
