"""`GRPOConfig` as the configurations of transformers and trl."""

from dataclasses import fields
from typing import Any

import torch
import trl
from transformers import TrainingArguments

from trainer.config import GRPOConfig
from trainer.runtime.precision import precision

NO_SAVE_STEPS = 10**9  # with save_steps 0, transformers still saves the last step
CHECKPOINTS_KEPT = 2
CLIPPED_ABOVE = 0.28  # a token's probability ratio, to 1 + this; below to 1 - 0.2, as in trl
# fields that these settings and transformers' or trl's have under the same name
SHARED = (
    *("output_dir", "num_train_epochs", "max_steps", "learning_rate", "warmup_steps"),
    *("seed", "logging_steps"),
)
GRPO_ONLY = (
    *("per_device_train_batch_size", "num_generations", "temperature", "beta", "scale_rewards"),
)


def shared_arguments(config: GRPOConfig) -> dict[str, Any]:
    """Return the fields of `transformers.TrainingArguments` that GRPO and a warm start share."""
    device, dtype = precision(config.device, config.dtype)
    # transformers renamed the switch, and warns about the old name
    checkpointing = "activation_checkpointing"
    if checkpointing not in {one.name for one in fields(TrainingArguments)}:
        checkpointing = "gradient_checkpointing"
    return {
        **{name: getattr(config, name) for name in SHARED},
        "lr_scheduler_type": config.lr_scheduler,
        "save_strategy": "steps",
        "save_steps": config.save_steps or NO_SAVE_STEPS,
        "save_total_limit": CHECKPOINTS_KEPT,
        "logging_nan_inf_filter": False,  # it would replace a NaN with the mean of earlier losses
        "disable_tqdm": True,  # the job shows its own progress
        "bf16": dtype is torch.bfloat16,
        "fp16": dtype is torch.float16,
        "use_cpu": device == "cpu",
        "dataloader_pin_memory": device != "cpu",
        "report_to": config.report_to or "none",
        checkpointing: config.gradient_checkpointing,
    }


def trl_config(config: GRPOConfig, processes: int = 1, **overrides: Any) -> trl.GRPOConfig:
    """Return the `trl.GRPOConfig` of one of `processes`; `overrides` are fields of trl's."""
    values: dict[str, Any] = {
        **shared_arguments(config),
        **{name: getattr(config, name) for name in GRPO_ONLY},
        "gradient_accumulation_steps": config.accumulation_steps(processes),
        "loss_type": "grpo",  # an episode counts by the mean over its tokens
        "epsilon_high": CLIPPED_ABOVE,
        "router_aux_loss_coef": 0.0,  # of a mixture of experts: it would need every token's logits
        "ddp_find_unused_parameters": False,  # every parameter of a causal LM takes part
        "max_completion_length": config.max_context_tokens,  # the rollout bounds rows, not TRL
        "reward_weights": config.reward_weights,
        "data_seed": config.seed,
    }
    return trl.GRPOConfig(**{**values, **overrides})
