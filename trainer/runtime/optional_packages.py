"""What only some settings need: LoRA adapters (peft), experiment trackers, a GPU's C compiler."""

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

from trainer.config import GRPOConfig
from trainer.errors import ConfigError


def check_extras(config: GRPOConfig) -> None:
    """Raise `ConfigError` for an unknown tracker, or a package that is needed and not installed."""
    if config.lora_rank and importlib.util.find_spec("peft") is None:
        raise ConfigError(
            f"lora_rank is {config.lora_rank}, which needs the package peft: "
            "pip install peft, or set lora_rank=0",
            field="lora_rank",
        )
    if config.report_to in ([], ["none"], ["all"]):
        return
    from transformers.integrations.integration_utils import get_reporting_integration_callbacks

    for name in config.report_to:
        try:
            for tracker in get_reporting_integration_callbacks([name]):
                tracker()  # each looks for its package
        except (ValueError, RuntimeError, ImportError, AssertionError) as error:
            raise ConfigError(f"report_to names {name}: {error}", field="report_to") from error


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
