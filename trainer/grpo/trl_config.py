"""`GRPOConfig` as the configurations of transformers and trl."""

from typing import Any

import trl

from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.runtime.training import shared_arguments

CLIPPED_ABOVE = 0.28  # a token's probability ratio, to 1 + this; below to 1 - 0.2, as in trl
# fields that these settings and transformers' or trl's have under the same name
GRPO_ONLY = (
    *("per_device_train_batch_size", "num_generations", "temperature", "beta", "scale_rewards"),
)


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
        "reward_weights": list(REWARD_WEIGHTS.values()),
        "data_seed": config.seed,
    }
    return trl.GRPOConfig(**{**values, **overrides})
