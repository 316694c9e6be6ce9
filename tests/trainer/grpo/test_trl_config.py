"""Conversion of settings to trl's configuration."""

import pytest

from trainer.config import GRPOConfig
from trainer.grpo.trl_config import trl_config
from trainer.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_convert(name: str) -> None:
    config = GRPOConfig.preset(name)
    converted = trl_config(config)
    # one generation batch is one optimizer step, so every checkpoint ends a generation window
    assert converted.generation_batch_size == config.rollouts_per_step
    assert converted.steps_per_generation == converted.gradient_accumulation_steps


def test_offline_is_64_rollouts_of_8_questions_on_a_cpu() -> None:
    config = GRPOConfig.preset("offline")
    assert config.rollouts_per_step == 64
    assert config.num_generations == 8
    converted = trl_config(config, output_dir="elsewhere")
    assert converted.use_cpu
    assert not converted.bf16
    assert not converted.fp16
    assert not converted.gradient_checkpointing
    assert converted.output_dir == "elsewhere"


def test_trl_sums_the_rewards_to_the_servers_ledger() -> None:
    converted = trl_config(GRPOConfig(device="cpu"))
    assert converted.reward_weights == [1.0, 0.15, 1.0]
    assert converted.beta == 0.0
    assert converted.report_to == []
    assert converted.max_completion_length == GRPOConfig().max_context_tokens
