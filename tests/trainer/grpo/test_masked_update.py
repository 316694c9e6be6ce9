"""Updates with masked logits: trl's loss and gradients, for every family of models and LoRA."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from tests.trainer.conftest import FakeClient
from tests.trainer.grpo.test_length_sorting import GradientCapture
from tests.trainer.grpo.test_train import prompts
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics
from trainer.runtime.precision import compute_logits_in_float32

FAMILIES = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


@dataclass
class Update:
    """One optimizer step."""

    row: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    cells: int = 0  # ids that passed the first layer, padding with them


def update(base: Path, tokenizer: Any, settings: GRPOConfig, client: FakeClient) -> Update:
    found, captured = Update(), GradientCapture()

    def count(_: Any, inputs: Any) -> None:
        if torch.is_grad_enabled():
            found.cells += inputs[0].shape[:2].numel()

    torch.manual_seed(1)  # of LoRA's adapters
    trainer = build_trainer(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        tokenizer,
        settings,
        prompts(settings),
        client=client,
        callbacks=[captured],
        max_grad_norm=1e9,
    )
    layers = [one for one in trainer.model.modules() if type(one).__name__.endswith("DecoderLayer")]
    layers[0].register_forward_pre_hook(count)
    _, rows = run_training_with_metrics(trainer)
    found.row = next(row for row in rows if "grad_norm" in row)
    found.gradients = captured.gradients
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lora_rank": 4},
        {"beta": 0.1},
        {"lora_rank": 4, "gradient_checkpointing": True},
        {"loss_type": "bnpo"},
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
    settings = config.override(
        max_steps=1,
        logging_steps=1,
        step_budget=4,
        max_new_tokens=6,
        output_dir=tmp_path,
        **options,
    )
    client = FakeClient(after={"q0": 1, "q1": 3})  # uneven lengths
    theirs, ours = (
        update(tmp_path / "base", tokenizer, settings.override(masked_logits=masked), client)
        for masked in (False, True)
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
    settings = config.override(dtype=dtype, max_steps=1, step_budget=4, output_dir=tmp_path)
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
