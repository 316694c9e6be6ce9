"""The sizes of the presets' models, which follow from config.json."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.trainer.architectures import CONFIGS
from trainer.presets import PRESETS, SAVED_AS, SIZES, parameter_count


@pytest.mark.parametrize("preset", PRESETS)
def test_the_parameters_are_those_of_the_model(preset: str) -> None:
    config = AutoConfig.for_model(**{k: v for k, v in CONFIGS[preset].items() if k != SAVED_AS})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert model.num_parameters() == SIZES[preset]
    assert parameter_count(CONFIGS[preset]) == pytest.approx(SIZES[preset], rel=1e-3)
