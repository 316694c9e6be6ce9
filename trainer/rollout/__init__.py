"""Play the episodes of a generation batch over HTTP, token-exact; TRL calls `rollout_func`."""

from trainer.rollout.loop import rollout_func
from trainer.rollout.parsing import parse_model_output

__all__ = ["parse_model_output", "rollout_func"]
