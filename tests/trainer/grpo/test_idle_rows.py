"""Rows without an advantage, and groups of one verdict."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import short_training
from tests.trainer.grpo.updates import Step, measured_step
from trainer.config import GRPOConfig
from trainer.grpo import length_sorting
from trainer.grpo.idle_rows import both_verdicts, without_idle_rows

LOST = math.nan


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


def update(settings: GRPOConfig, model: Any, tokenizer: Any, correct: Any = right_first) -> Step:
    return measured_step(model, tokenizer, settings, reward_funcs=(correct, lengths, lengths))


@pytest.mark.parametrize(
    "options",
    [
        {"loss_type": "grpo"},
        {"loss_type": "dapo"},
        {"loss_type": "dr_grpo"},
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
    settings = short_training(
        config,
        tmp_path,
        scale_rewards="batch",
        skip_one_verdict_groups=True,
        **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, **options},
    )
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    ours = update(settings, model, tokenizer)
    model.load_state_dict(weights)
    with monkeypatch.context() as patched:
        patched.setattr(length_sorting, "without_idle_rows", lambda batch: batch)
        all_rows = update(settings, model, tokenizer)
    assert len(ours.updates) == len(all_rows.updates) == settings.updates_per_batch
    for found, expected in zip(ours.updates, all_rows.updates, strict=True):
        assert any(gradient.any() for gradient in expected.values())
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-3)
    assert ours.cells < 0.7 * all_rows.cells
    row = ours.row
    assert row["one_verdict_groups"] == 0.5
    assert row["entropy"] > 0.5, "a mean over the rows that count"
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())


def test_a_group_of_one_verdict_teaches_by_its_costs_unless_it_is_skipped(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = short_training(config, tmp_path, max_new_tokens=12)
    [taught] = update(settings, model, tokenizer, none_right).updates
    assert any(one.any() for one in taught.values())
    assert "teaches nothing" not in caplog.text
    skipping = settings.override(skip_one_verdict_groups=True)
    step = update(skipping, model, tokenizer, none_right)
    [skipped], row = step.updates, step.row
    assert skipped
    assert not any(one.any() for one in skipped.values())
    assert row["one_verdict_groups"] == 1
    assert "entropy" not in row, "of no token"
    assert "step 1 teaches nothing, because none of its episodes is right" in caplog.text


def test_a_step_that_is_all_right_is_no_reason_to_warn(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = short_training(config, tmp_path, max_new_tokens=12, skip_one_verdict_groups=True)
    row = update(settings, model, tokenizer, all_right).row
    assert row["one_verdict_groups"] == 1
    assert "teaches nothing" not in caplog.text
