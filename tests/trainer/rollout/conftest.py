"""Prompts of several questions, and when the fake server's episodes of them end."""

from typing import Any

from trainer.config import GRPOConfig
from trainer.rollout.dataset import prompt_of

NAMES = ("a", "a", "b", "c", "c", "c", "d", "e")
AFTER = {"a": 1, "b": 2, "c": 6, "d": 3}


def prompts_for(config: GRPOConfig, *question_ids: str) -> list[Any]:
    return [
        prompt_of(question_id, "How many orders are there?", config) for question_id in question_ids
    ]
