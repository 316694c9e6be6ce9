"""Rows without an advantage, and groups of one verdict."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import FakeClient
from tests.trainer.grpo.test_length_sorting import GradientCapture
from tests.trainer.grpo.test_train import prompts
from trainer.config import GRPOConfig
from trainer.grpo import length_sorting
from trainer.grpo.idle_rows import both_verdicts, without_idle_rows
from trainer.grpo.train import build_trainer, run_training_with_metrics

LOST = math.nan
Gradients = dict[str, torch.Tensor]


def test_a_group_has_both_verdicts_whatever_was_lost() -> None:
    groups = [[1, 1, 1], [0, 0, 0], [1, LOST, 0], [1, LOST, 1], [LOST, LOST, LOST]]
    found = both_verdicts(torch.tensor(groups).flatten(), 3)
    assert found.view(-1, 3).tolist() == [[both] * 3 for both in (False, False, True, False, False)]


def test_an_idle_row_keeps_two_ids_of_its_prompt() -> None:
    batch = {
        "advantages": torch.tensor([0.5, 0.0]),
        "prompt_mask": torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]]),
        "completion_mask": torch.tensor([[1, 1], [1, 0]]),
    }
    found = without_idle_rows(batch)
    assert found["prompt_mask"].tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    assert found["completion_mask"].tolist() == [[1, 1], [0, 0]]
    assert batch["prompt_mask"].sum() == 7, "the batch itself is as it was"


def right_first(completions: list[Any], **_: Any) -> list[float]:
    """The first group of four has both verdicts, the others are all wrong."""
    return [float(index in (0, 2)) for index in range(len(completions))]


def lengths(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Rewards that differ within every group."""
    return [len(ids) / 100 for ids in completion_ids]


def none_right(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def all_right(completions: list[Any], **_: Any) -> list[float]:
    return [1.0] * len(completions)


def update(
    settings: GRPOConfig, model: Any, tokenizer: Any, correct: Any = right_first
) -> tuple[list[Gradients], dict[str, Any], int]:
    """Return the gradients of each update, the logged row, and the ids that passed the layers."""
    captured, cells = GradientCapture(), 0
    trainer = build_trainer(
        model,
        tokenizer,
        settings,
        prompts(settings),
        client=FakeClient(after={"q0": 1, "q1": 3}),
        callbacks=[captured],
        reward_funcs=(correct, lengths, lengths),
        max_grad_norm=1e9,
    )

    def count(_: Any, inputs: Any) -> None:
        nonlocal cells
        if torch.is_grad_enabled():
            cells += inputs[0].shape[:2].numel()

    trainer.model.model.layers[0].register_forward_pre_hook(count)
    _, rows = run_training_with_metrics(trainer)
    return captured.all, next(row for row in rows if "grad_norm" in row), cells


@pytest.mark.parametrize(
    "options",
    [
        {"loss_type": "grpo"},
        {"loss_type": "dapo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "grpo", "masked_logits": False},
        # idle rows beside others in one micro-batch, which share the prompt
        {"loss_type": "grpo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        {"loss_type": "grpo", "updates_per_batch": 2, "learning_rate": 1e-3},
    ],
    ids=str,
)
def test_an_update_is_the_same_without_idle_rows(
    config: GRPOConfig,
    model: Any,
    tokenizer: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    settings = config.override(
        max_steps=1,
        logging_steps=1,
        step_budget=4,
        max_new_tokens=6,
        output_dir=tmp_path,
        scale_rewards="batch",
        skip_one_verdict_groups=True,
        **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, **options},
    )
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    ours, row, cells = update(settings, model, tokenizer)
    model.load_state_dict(weights)
    with monkeypatch.context() as patched:
        patched.setattr(length_sorting, "without_idle_rows", lambda batch: batch)
        all_rows, _, all_cells = update(settings, model, tokenizer)
    assert len(ours) == len(all_rows) == settings.updates_per_batch
    for found, expected in zip(ours, all_rows, strict=True):
        assert any(gradient.any() for gradient in expected.values())
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-3)
    assert cells < 0.7 * all_cells
    assert row["one_verdict_groups"] == 0.5
    assert row["entropy"] > 0.5, "a mean over the rows that count"
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())


def test_a_group_of_one_verdict_teaches_by_its_costs_unless_it_is_skipped(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config.override(max_steps=1, logging_steps=1, output_dir=tmp_path, step_budget=4)
    [taught], _, _ = update(settings, model, tokenizer, none_right)
    assert any(one.any() for one in taught.values())
    assert "teaches nothing" not in caplog.text
    skipping = settings.override(skip_one_verdict_groups=True)
    [skipped], row, _ = update(skipping, model, tokenizer, none_right)
    assert skipped
    assert not any(one.any() for one in skipped.values())
    assert row["one_verdict_groups"] == 1
    assert "entropy" not in row, "of no token"
    assert "step 1 teaches nothing, because none of its episodes is right" in caplog.text


def test_a_step_that_is_all_right_is_no_reason_to_warn(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config.override(
        max_steps=1,
        logging_steps=1,
        output_dir=tmp_path,
        step_budget=4,
        skip_one_verdict_groups=True,
    )
    _, row, _ = update(settings, model, tokenizer, all_right)
    assert row["one_verdict_groups"] == 1
    assert "teaches nothing" not in caplog.text
