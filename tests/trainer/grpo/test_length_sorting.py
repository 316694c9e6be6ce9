"""Micro-batches by length: the same gradient as trl's own, with less padding."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3ForCausalLM
from trl import GRPOTrainer

from tests.trainer.conftest import FakeClient, prompts, short_training
from tests.trainer.grpo.updates import GradientCapture, Step, measured_step
from trainer.config import GRPOConfig
from trainer.grpo.length_sorting import LengthSortedGRPOTrainer, sort_by_length, split_updates, trim
from trainer.grpo.train import build_trainer, run_training_with_metrics


def batch() -> dict[str, Any]:
    """Return three rows: prompts padded on the left, completions on the right, as trl pads them."""
    return {
        "prompt_ids": torch.tensor([[0, 0, 7], [0, 5, 6], [0, 0, 8]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0]]),
        "completion_mask": torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]),
        "tool_mask": torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]]),
        "advantages": torch.tensor([0.1, 0.2, 0.3]),
        "num_items_in_batch": torch.tensor(5),
        "ref_per_token_logps": None,
    }


def test_rows_stay_together_when_they_are_sorted() -> None:
    found = sort_by_length(batch())
    assert found["advantages"].tolist() == pytest.approx([0.2, 0.3, 0.1])  # 4, 4 and 2 tokens
    assert found["completion_ids"].tolist() == [[2, 3, 0, 0], [4, 5, 6, 0], [1, 0, 0, 0]]
    assert found["tool_mask"].tolist() == [[1, 0, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1]]
    assert found["num_items_in_batch"] == 5
    assert found["ref_per_token_logps"] is None


def test_each_update_has_as_many_rows_of_each_group() -> None:
    groups = torch.arange(3).repeat_interleave(4)  # 3 questions with 4 rollouts
    lengths = torch.tensor([1, 2, 3, 4, 1, 9, 3, 4, 1, 2, 3, 4])
    mask = (torch.arange(9) < lengths.unsqueeze(1)).long()
    rows = {"completion_mask": mask, "prompt_mask": mask[:, :1], "group": groups, "none": None}
    [whole] = split_updates(rows, 1)
    assert whole["group"].tolist() == sort_by_length(rows)["group"].tolist()
    parts = split_updates(rows, 2)
    assert [part["completion_mask"].sum(1).tolist() for part in parts] == [
        [3, 3, 3, 1, 1, 1],
        [9, 4, 4, 4, 2, 2],
    ]
    assert all(sorted(part["group"].tolist()) == [0, 0, 1, 1, 2, 2] for part in parts)


def test_only_padding_is_cut() -> None:
    found = trim(batch())
    assert found["prompt_ids"].tolist() == [[0, 7], [5, 6], [0, 8]]
    assert found["prompt_mask"].tolist() == [[0, 1], [1, 1], [0, 1]]
    assert found["completion_ids"].tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 6]]
    assert found["tool_mask"].tolist() == [[1, 1, 1], [1, 0, 1], [1, 0, 1]]
    assert found["advantages"].tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_rows_without_a_token_keep_one_column() -> None:
    empty = batch() | {"completion_mask": torch.zeros(3, 4, dtype=torch.long)}
    assert trim(empty)["completion_ids"].shape == (3, 1)


@pytest.mark.parametrize(("loss_type", "beta"), [("dapo", 0.1), ("grpo", 0.0), ("dr_grpo", 0.0)])
def test_the_update_is_trls(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, loss_type: str, beta: float
) -> None:
    """One step of both trainers from the same weights and episodes: the same gradients, to
    rounding."""
    model.save_pretrained(tmp_path / "base")  # beta's reference model is loaded from there
    settings = short_training(
        config,
        tmp_path,
        loss_type=loss_type,
        beta=beta,
        gradient_accumulation_steps=4,
        per_device_train_batch_size=2,
    )
    theirs, their_size = step_of(GRPOTrainer, settings, tokenizer)
    ours, size = step_of(LengthSortedGRPOTrainer, settings, tokenizer)
    assert ours.row["reward"] == theirs.row["reward"]
    assert ours.row["grad_norm"] == pytest.approx(theirs.row["grad_norm"], rel=1e-4)
    for name, gradient in theirs.gradients.items():
        torch.testing.assert_close(ours.gradients[name], gradient, atol=1e-6, rtol=1e-3)
    assert size < their_size


def test_several_updates_are_those_of_trl_on_their_rows_with_a_clipped_ratio(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """trl's own loss on each part of the rows, with the probabilities that sampled them as the old
    ones, after the updates before."""
    settings = short_training(
        config,
        tmp_path,
        loss_type="grpo",
        gradient_accumulation_steps=4,
        per_device_train_batch_size=2,
        updates_per_batch=2,
        learning_rate=1e-2,
        epsilon=1e-3,
        max_grad_norm=1e9,
        epsilon_high=1e-3,
    )
    captured = GradientCapture()
    client = FakeClient(after={"q0": 1, "q1": 3})
    trainer = build_trainer(
        model, tokenizer, settings, prompts(settings), client=client, callbacks=[captured]
    )
    batches: list[dict[str, Any]] = []
    states: list[dict[str, torch.Tensor]] = []
    compute = trainer._compute_loss

    def recorded(own: Any, inputs: Any) -> Any:
        batches.append(inputs)
        states.append({name: one.detach().clone() for name, one in own.named_parameters()})
        return compute(own, inputs)

    trainer._compute_loss = recorded
    run_training_with_metrics(trainer)
    assert trainer.state.global_step == 1
    assert len(captured.all) == 2
    ratios = []
    for update, found in enumerate(captured.all):
        trainer.model.load_state_dict(states[2 * update], strict=False)
        trainer.model.zero_grad()
        trainer.current_gradient_accumulation_steps = 2
        for inputs in batches[2 * update : 2 * update + 2]:
            old = inputs["sampling_per_token_logps"]
            theirs = {**inputs, "old_per_token_logps": old}
            GRPOTrainer._compute_loss(trainer, trainer.model, theirs).backward()
        for name, one in trainer.model.named_parameters():
            torch.testing.assert_close(found[name], one.grad, atol=1e-6, rtol=1e-3)
        metrics = trainer._metrics["train"]["clip_ratio/region_mean"]
        ratios.append(sum(metrics[-2:]))
    assert ratios[0] == 0 < ratios[1], "only the second update is of older rows"


def step_of(kind: type[Any], settings: GRPOConfig, tokenizer: Any) -> tuple[Step, int]:
    """Return a step of a trainer, and how many completion ids it computed, padding with them."""
    sizes: list[int] = []
    base = Qwen3ForCausalLM.from_pretrained(Path(settings.output_dir) / "base", dtype=torch.float32)

    def prepare(trainer: Any) -> None:
        trainer.__class__ = kind
        compute = trainer._compute_loss

        def measured(own: Any, inputs: Any) -> Any:
            sizes.append(inputs["completion_ids"].numel())
            return compute(own, inputs)

        trainer._compute_loss = measured

    return measured_step(base, tokenizer, settings, prepare), sum(sizes)
