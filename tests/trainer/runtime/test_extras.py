"""LoRA, gradient checkpointing and experiment trackers, and errors for missing packages."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import FakeClient, prompts, short_training
from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.evaluation.inputs import JobOptions, load_inputs
from trainer.grpo.train import build_trainer, run_training_with_metrics, save_trained

LORA = {"lora_rank": 4}


@pytest.fixture
def settings(config: GRPOConfig, tmp_path: Path) -> GRPOConfig:
    return short_training(
        config, tmp_path, max_steps=2, step_budget=2, max_new_tokens=4, learning_rate=1e-2
    )


def test_only_adapters_are_trained(settings: GRPOConfig, model: Any, tokenizer: Any) -> None:
    pytest.importorskip("peft")
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    trainer = build_trainer(
        model, tokenizer, settings.override(**LORA), prompts(settings), client=FakeClient()
    )
    trained = {name for name, one in trainer.model.named_parameters() if one.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    run_training_with_metrics(trainer)
    after = dict(trainer.model.named_parameters())
    assert any(bool(after[name].any()) for name in trained if "lora_B" in name)  # initially 0
    for name, tensor in before.items():
        first, _, last = f"base_model.model.{name}".rpartition(".")
        kept = after.get(f"{first}.base_layer.{last}", after.get(f"{first}.{last}"))
        assert kept is not None
        assert torch.equal(kept, tensor)
    state = sum(
        one.numel()
        for group in trainer.optimizer.state.values()
        for one in group.values()
        if one.ndim
    )
    # Adam's two moments, of the adapters only
    assert state == 2 * sum(after[name].numel() for name in trained)


def test_frozen_weights_are_bfloat16_and_the_saved_model_keeps_every_change(
    settings: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    pytest.importorskip("peft")
    before = {name: one.bfloat16().float() for name, one in model.state_dict().items()}
    # a bfloat16 weight, of 3 digits, would not change
    config = settings.override(**LORA, dtype="bfloat16", learning_rate=1e-5)
    trainer = build_trainer(model, tokenizer, config, prompts(config), client=FakeClient())
    layers = {
        (one.requires_grad, one.dtype)
        for name, one in trainer.model.named_parameters()
        if "_proj" in name
    }
    assert layers == {(False, torch.bfloat16), (True, torch.float32)}
    run_training_with_metrics(trainer)
    merged = save_trained(trainer, tmp_path / "saved")
    assert all(one.requires_grad for one in merged.parameters())  # or autocast casts at every use
    changed = merged.state_dict()
    assert {one.dtype for one in changed.values()} == {torch.float32}
    projections = [name for name in changed if name.endswith("_proj.weight")]
    assert len(projections) == 2 * 7
    for name in projections:
        change = (changed[name] - before[name]).abs()
        assert 0 < change.max() < 1e-3


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"report_to": "wandb"}, r"report_to names wandb: .* requires wandb to be installed"),
        ({"report_to": "tensorboard,trackio"}, r"report_to names trackio: .*installed"),
        ({"report_to": "tensorbord"}, r"report_to names tensorbord: .*tensorboard"),
        ({"report_to": "none,tensorboard"}, r"report_to names none: "),
        ({"lora_rank": "8"}, r"lora_rank is 8, which needs the package peft: pip install peft"),
    ],
)
def test_a_missing_package_is_named_before_a_run_starts(
    small: GRPOConfig, monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], problem: str
) -> None:
    find, missing = importlib.util.find_spec, ("wandb", "trackio", "peft")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find(name)
    )
    with pytest.raises(ConfigError, match=problem):
        load_inputs(small.override(**asked), JobOptions())
