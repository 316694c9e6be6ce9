"""Settings of training (`settings.py`) and the presets of models (`presets.py`)."""

from trainer.config.settings import (
    AGREE_SHARE,
    DEFAULT_SERVER_URL,
    LABEL_WEIGHT,
    PROMPTS,
    REWARD_WEIGHTS,
    ApiName,
    ConfigError,
    FormatName,
    GRPOConfig,
    LabelsName,
    PolicyName,
)

__all__ = [
    "AGREE_SHARE",
    "DEFAULT_SERVER_URL",
    "LABEL_WEIGHT",
    "PROMPTS",
    "REWARD_WEIGHTS",
    "ApiName",
    "ConfigError",
    "FormatName",
    "GRPOConfig",
    "LabelsName",
    "PolicyName",
]
