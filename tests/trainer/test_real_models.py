"""Real weights, where MODELS_HOME has them: exact log-probabilities, and a LoRA update."""

import os
from pathlib import Path

import pytest

from tests.trainer.conftest import FakeClient, check_recorded, prompts_for
from trainer.config.settings import GRPOConfig
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.loop import local_generator, play_episodes
from trainer.runtime.models import load_model_and_tokenizer, preset_of

pytestmark = pytest.mark.slow
NAMES = ("smollm2-135m", "qwen2.5-coder-0.5b")


@pytest.fixture(params=NAMES)
def settings(request: pytest.FixtureRequest) -> GRPOConfig:
    """The preset that the model gets, on a CPU in float32, with short episodes."""
    folder = Path(os.environ.get("MODELS_HOME", "")) / request.param
    if not (folder / "model.safetensors").is_file():
        pytest.skip(f"MODELS_HOME has no {request.param}")
    choice = preset_of(str(folder))
    config = GRPOConfig.preset(choice.preset, **choice.settings)
    short = {"system_prompt": "short", "max_new_tokens": 16, "step_budget": 3}
    return config.override(device="cpu", dtype="float32", **short)


def test_recorded_log_probabilities_are_those_of_one_pass(settings):
    model, tokenizer = load_model_and_tokenizer(settings)
    generator = local_generator(model.eval(), codec_of(tokenizer, False), settings)
    options = {"client": FakeClient(after={"b": 2}), "generator": generator, "seed": 1}
    rows = play_episodes(prompts_for(settings, "a", "b"), None, tokenizer, settings, **options)
    assert [row.steps for row in rows] == [3, 2]
    for row in rows:
        assert sum(row.env_mask) == row.sampled_tokens
        check_recorded(model, row)
