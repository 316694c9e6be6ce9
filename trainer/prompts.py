"""Public name of `trainer.rollout.prompts`."""

from trainer.rollout.prompts import format_observation, get_system_prompt

__all__ = ["format_observation", "get_system_prompt"]
