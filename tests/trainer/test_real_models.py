"""Real weights, where MODELS_HOME has them: exact log-probabilities, and a LoRA update."""

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import FakeClient, prompts
from tests.trainer.rollout.conftest import prompts_for
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics
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


def test_an_update_changes_what_is_trained(settings: GRPOConfig, tmp_path: Path) -> None:
    config = settings.override(
        max_steps=1,
        lora_rank=4,
        num_generations=2,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        learning_rate=1e-3,
        warmup_steps=0,
        temperature=2.0,  # equal rows would have gradients that cancel
        output_dir=tmp_path,
    )
    model, tokenizer = load_model_and_tokenizer(config)

    def first_is_better(completions: list[Any], **_: Any) -> list[float]:
        return [float(index == 0) for index in range(len(completions))]

    trainer = build_trainer(
        model,
        tokenizer,
        config,
        prompts(config),
        client=FakeClient(),
        reward_funcs=(first_is_better,) * 3,
    )
    _, rows = run_training_with_metrics(trainer)
    row = next(one for one in rows if "grad_norm" in one)
    assert math.isfinite(row["loss"])
    assert row["grad_norm"] > 0
    adapters = {name: one for name, one in trainer.model.named_parameters() if one.requires_grad}
    assert any(one.any() for name, one in adapters.items() if "lora_B" in name)  # 0 at the start
