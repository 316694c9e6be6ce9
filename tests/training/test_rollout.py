"""Node ids that the specification names; the tests are in `tests.trainer.rollout`."""

from tests.trainer.rollout.test_parsing import test_parse_model_output_fallback
from tests.trainer.rollout.test_rollout_func import test_rollout_func

__all__ = ["test_parse_model_output_fallback", "test_rollout_func"]
