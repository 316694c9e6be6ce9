"""Real weights, where MODELS_HOME has them: exact log-probabilities, and a LoRA update."""

import os
from pathlib import Path

import pytest
import torch

from tests.trainer.conftest import FakeClient, prompts_for
from trainer.config import GRPOConfig
from trainer.rollout.loop import local_generator, play_episodes
from trainer.rollout.tokens import codec_of
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


def test_recorded_log_probabilities_are_those_of_one_pass(settings: GRPOConfig) -> None:
    model, tokenizer = load_model_and_tokenizer(settings)
    generator = local_generator(model.eval(), codec_of(tokenizer, False), settings)
    rows = play_episodes(
        prompts_for(settings, "a", "b"),
        None,
        tokenizer,
        settings,
        client=FakeClient(after={"b": 2}),
        generator=generator,
        seed=1,
    )
    assert [row.steps for row in rows] == [3, 2]
    for row in rows:
        with torch.no_grad():
            logits = model(torch.tensor([row.ids])).logits[0, :-1].float()
        own = logits.log_softmax(-1).gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0]
        start = len(row.prompt_ids) - 1
        sampled = [n for n, mask in enumerate(row.env_mask) if mask]
        assert len(sampled) == row.sampled_tokens > 0
        assert max(abs(float(own[start + n]) - row.logprobs[n]) for n in sampled) < 1e-4
