"""Packages that only some settings need: adapters (peft) and experiment trackers. Asked for before
a run begins."""

import importlib.util
from typing import Any

from trainer.config import GRPOConfig
from trainer.errors import ConfigError

# Trackers whose module or package has another name than transformers gives them.
_MODULES = {"azure_ml": "azureml", "flyte": "flytekit"}
_PACKAGES = {"azure_ml": "azureml-sdk", "dagshub": "dagshub mlflow", "flyte": "flytekit"}
NONE, ALL = "none", "all"


def check_extras(config: GRPOConfig) -> None:
    """`ConfigError` naming the first package that the settings need and that isn't installed, or an
    unknown tracker."""
    if config.lora_rank and not _installed("peft"):
        raise ConfigError(
            f"lora_rank is {config.lora_rank}, which needs the package peft: pip install peft, or leave lora_rank at 0",
            field="lora_rank",
        )
    asked = config.report_to
    if not asked or asked in ([NONE], [ALL]):
        return
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    for name in asked:
        if name not in INTEGRATION_TO_CALLBACK:
            raise ConfigError(
                f"report_to names {name!r}: use none, all, or some of {', '.join(INTEGRATION_TO_CALLBACK)}",
                field="report_to",
            )
        modules = (
            ("tensorboard", "tensorboardX")
            if name == "tensorboard"
            else (_MODULES.get(name, name),)
        )
        if not any(map(_installed, modules)):
            package = _PACKAGES.get(name, name)
            raise ConfigError(
                f"report_to names {name}, which needs the package {package}: pip install {package}, or take it out",
                field="report_to",
            )


def lora_config(config: GRPOConfig) -> Any:
    """The `peft.LoraConfig` of the settings; None where all weights are trained.

    Without dropout: the log-probabilities of a rollout are those of the update.
    """
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
