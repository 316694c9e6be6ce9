"""What only some settings need: LoRA adapters (peft), experiment trackers, a GPU's C compiler."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from trainer.config import GRPOConfig
from trainer.errors import ConfigError

# Trackers whose module or package is not named like transformers' own name for them.
_MODULES = {"azure_ml": "azureml", "flyte": "flytekit"}
_PACKAGES = {"azure_ml": "azureml-sdk", "dagshub": "dagshub mlflow", "flyte": "flytekit"}


def check_extras(config: GRPOConfig) -> None:
    """Raise `ConfigError` for an unknown tracker, or a package that is needed and not installed."""
    if config.lora_rank and not _installed("peft"):
        raise ConfigError(
            f"lora_rank is {config.lora_rank}, which needs the package peft: "
            "pip install peft, or set lora_rank=0",
            field="lora_rank",
        )
    trackers = config.report_to
    if not trackers or trackers in (["none"], ["all"]):
        return
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK as KNOWN

    for name in trackers:
        if name not in KNOWN:
            raise ConfigError(
                f"report_to names {name!r}: use none, all, or some of {', '.join(KNOWN)}",
                field="report_to",
            )
        modules = [_MODULES.get(name, name)]
        if name == "tensorboard":
            modules.append("tensorboardX")
        if not any(map(_installed, modules)):
            package = _PACKAGES.get(name, name)
            raise ConfigError(
                f"report_to names {name}, which needs the package {package}: "
                f"pip install {package}, or remove it from report_to",
                field="report_to",
            )


def lora_config(config: GRPOConfig) -> Any:
    """Return the `peft.LoraConfig` of the settings, or None where all weights are trained."""
    if not config.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora_rank,
        lora_alpha=2 * config.lora_rank,
        lora_dropout=0.0,  # a rollout's log-probabilities must be those of the update
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def can_compile_kernels() -> bool:
    """Return whether Triton finds a C compiler and Python's headers when kernels are first used."""
    compiler = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").is_file()


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
