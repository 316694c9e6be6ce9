"""Conversion of settings to trl's configuration."""

import pytest

from trainer.config import GRPOConfig
from trainer.grpo.trl_config import trl_config
from trainer.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_convert(name: str) -> None:
    config = GRPOConfig.preset(name)
    converted = trl_config(config, output_dir="elsewhere")
    # one generation batch is one optimizer step, so every checkpoint ends a generation window
    assert converted.generation_batch_size == config.rollouts_per_step
    assert converted.steps_per_generation == converted.gradient_accumulation_steps
    # trl sums the rewards to the server's ledger
    assert converted.reward_weights == [1.0, 0.15, 1.0]
    assert (converted.epsilon, converted.epsilon_high) == (0.2, 0.28)
    assert (converted.loss_type, converted.max_grad_norm) == ("grpo", 1.0)
    assert converted.max_completion_length == config.max_context_tokens
    assert converted.report_to == []
    assert converted.output_dir == "elsewhere"
