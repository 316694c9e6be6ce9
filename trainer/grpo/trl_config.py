"""`GRPOConfig` as trl's own configuration."""

from dataclasses import fields
from typing import Any

import trl
from accelerate import DistributedType

from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.runtime.precision import precision
from trainer.runtime.sharding import fsdp_options, gathered_precision

# fields that both configurations have under the same name
SAME_NAME = (
    *("output_dir", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("learning_rate", "warmup_steps", "weight_decay", "max_grad_norm", "num_generations"),
    *("temperature", "beta", "loss_type", "scale_rewards", "seed", "logging_steps"),
    *("epsilon", "epsilon_high"),
)


def trl_config(config: GRPOConfig, processes: int = 1, **overrides: Any) -> trl.GRPOConfig:
    """Return the `trl.GRPOConfig` of one of `processes`; `overrides` are fields of trl's."""
    device, plan = precision(config.device, config.dtype)
    known = {one.name for one in fields(trl.GRPOConfig)}
    # transformers renamed the switch, and warns about the old name
    checkpointing = "activation_checkpointing"
    if checkpointing not in known:
        checkpointing = "gradient_checkpointing"
    values: dict[str, Any] = {
        **{name: getattr(config, name) for name in SAME_NAME},
        "gradient_accumulation_steps": config.accumulation_steps(processes),
        "ddp_find_unused_parameters": False,  # every parameter of a causal LM takes part
        "lr_scheduler_type": config.lr_scheduler,
        "max_completion_length": config.max_context_tokens,  # the rollout bounds rows, not TRL
        "reward_weights": list(REWARD_WEIGHTS),
        "data_seed": config.seed,
        "save_strategy": "steps" if config.save_steps else "no",
        "save_steps": config.save_steps or 500,
        "bf16": plan.trl_bf16,
        "fp16": plan.trl_fp16,
        "use_cpu": device == "cpu",
        "dataloader_pin_memory": device != "cpu",
        "report_to": config.report_to or "none",
        # FSDP has its own, which gathers a layer's weights again
        checkpointing: config.gradient_checkpointing and config.sharding == "none",
        **fsdp_options(config),
    }
    arguments = trl.GRPOConfig(**{**values, **overrides})
    if arguments.fsdp_plugin_args is not None:
        arguments.fsdp_plugin_args["mixed_precision_policy"] = gathered_precision(plan)
        if device == "cpu":  # accelerate shards there, too, but not what it calls MULTI_CPU
            arguments.distributed_state.distributed_type = DistributedType.MULTI_GPU
    return arguments
