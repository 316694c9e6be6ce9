"""Updates with masked logits: trl's loss and gradients, for every family of models and LoRA."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from tests.trainer.conftest import FakeClient, prompts, short_training
from tests.trainer.grpo.updates import Step, measured_step
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics
from trainer.runtime.precision import compute_logits_in_float32

FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def update(base: Path, tokenizer: Any, settings: GRPOConfig, masked: bool) -> Step:
    torch.manual_seed(1)  # of LoRA's adapters
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)

    def prepare(trainer: Any) -> None:
        trainer._masking = masked

    return measured_step(model, tokenizer, settings, prepare)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, {}) for family in FAMILIES),
        ("qwen3", {"lora_rank": 4}),
        ("qwen3", {"beta": 0.1}),
        ("qwen3", {"lora_rank": 4, "gradient_checkpointing": True}),
        ("qwen3", {"loss_type": "bnpo"}),
    ],
    ids=str,
)
def test_loss_and_gradients_are_trls(
    config: GRPOConfig, tokenizer: Any, tmp_path: Path, family: str, options: dict[str, Any]
) -> None:
    if "lora_rank" in options:
        pytest.importorskip("peft")
    torch.manual_seed(0)
    shape = FAMILIES[family](
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.1,
    )
    AutoModelForCausalLM.from_config(shape).save_pretrained(tmp_path / "base")
    settings = short_training(config, tmp_path, **options)
    theirs, ours = (
        update(tmp_path / "base", tokenizer, settings, masked) for masked in (False, True)
    )
    for name in ("reward", "loss", "entropy", "grad_norm", "clip_ratio/region_mean"):
        assert ours.row[name] == pytest.approx(theirs.row[name], rel=1e-4, abs=1e-7), name
    assert theirs.row["grad_norm"] > 0
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, gradient in theirs.gradients.items():
        torch.testing.assert_close(ours.gradients[name], gradient, atol=1e-6, rtol=1e-3)
    if "gradient_checkpointing" not in options:
        assert ours.cells < 0.8 * theirs.cells  # the prompt was shared


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_recorded_log_probabilities_are_those_of_the_update(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, dtype: Any, bound: float
) -> None:
    settings = short_training(config, tmp_path, dtype=dtype, max_new_tokens=12)
    compute_logits_in_float32(model, settings)
    trainer = build_trainer(model, tokenizer, settings, prompts(settings), client=FakeClient())
    compute, score = trainer._compute_loss, trainer._get_per_token_logps_and_entropies
    batches: list[dict[str, torch.Tensor]] = []
    differences: list[torch.Tensor] = []

    def watched_loss(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
        batches.append(inputs)
        return compute(model, inputs)

    def watched_scores(*arguments: Any, **options: Any) -> Any:
        found = score(*arguments, **options)
        inputs = batches[-1]
        trained = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        differences.append((found[0] - inputs["sampling_per_token_logps"])[trained].detach())
        return found

    trainer._compute_loss, trainer._get_per_token_logps_and_entropies = watched_loss, watched_scores
    run_training_with_metrics(trainer)
    found = torch.cat(differences).abs()
    assert len(found) > 50
    assert found.max() < bound
