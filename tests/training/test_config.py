"""A node id that the specification names; the tests are in `tests.trainer.test_config`."""

from tests.trainer.test_config import test_grpo_config_defaults

__all__ = ["test_grpo_config_defaults"]
