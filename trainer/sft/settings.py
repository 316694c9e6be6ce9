"""The settings of a warm start that differ from those of reinforcement learning."""

from collections.abc import Mapping
from typing import Any

from trainer.cli import configured
from trainer.config import GRPOConfig
from trainer.presets import Choice

LEARNING_RATE = 5e-4  # measured: adapters of Qwen2.5-Coder-0.5B, all weights of SmolLM2-135M
LARGE_LEARNING_RATE = 1e-4  # all weights of a larger model
SMALL = ("offline", "smollm2-135m")  # presets
DEFAULTS: dict[str, Any] = {
    "num_train_epochs": 2,
    "max_steps": -1,
    "lr_scheduler": "linear",
    "warmup_steps": 5,
    "logging_steps": 1,
}


def warm_start_config(
    preset: str | None, overrides: Mapping[str, Any]
) -> tuple[Choice, GRPOConfig]:
    """Return the preset of the model, and its settings with the schedule of a warm start."""
    choice, config = configured(preset, {**DEFAULTS, **overrides})
    if "learning_rate" in overrides:
        return choice, config
    small = config.lora_rank or choice.preset in SMALL
    rate = LEARNING_RATE if small else LARGE_LEARNING_RATE
    return choice, config.override(learning_rate=rate)
