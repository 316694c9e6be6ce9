"""Play the episodes of a generation batch over HTTP, token-exact; TRL calls `rollout_func`."""

from trainer.rollout.adapters import rollout_func
from trainer.rollout.parsing import ParsedAction, parse_model_output, parse_with_fallback

__all__ = ["ParsedAction", "parse_model_output", "parse_with_fallback", "rollout_func"]
