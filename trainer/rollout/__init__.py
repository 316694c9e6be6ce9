"""Play the episodes of one generation batch over HTTP, token-exact. `rollout_func` is what TRL
calls."""

from trainer.rollout.loop import rollout_func
from trainer.rollout.parsing import parse_model_output

__all__ = ["parse_model_output", "rollout_func"]
