"""Updates by length, with few logits and without idle rows: trl's own gradients, for less work.

And how a generation batch is split into updates and micro-batches.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOTrainer

from tests.trainer.conftest import FakeClient, prompts, short_training
from tests.trainer.model_families import FAMILIES, tiny_model, tiny_tokenizer
from trainer.config import GRPOConfig
from trainer.grpo import length_sorting
from trainer.grpo.length_sorting import LengthSortedGRPOTrainer, both_verdicts, split_updates, trim
from trainer.grpo.train import build_trainer
from trainer.runtime.precision import compute_logits_in_float32
from trainer.runtime.training import run_training_with_metrics

SMALL_BATCHES = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}


Gradients = dict[str, torch.Tensor]


class GradientCapture(TrainerCallback):  # type: ignore[misc]
    """Keeps the gradients of every update, as they are before the optimizer takes them."""

    def __init__(self) -> None:
        self.all: list[Gradients] = []

    def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
        self.all.append(
            {name: one.grad.clone() for name, one in model.named_parameters() if one.requires_grad}
        )


@dataclass
class Step:
    """A training step: its logged row, and the gradients of each of its updates."""

    row: dict[str, Any]
    updates: list[Gradients]
    cells: int  # ids that passed the first layer, padding with them

    @property
    def gradients(self) -> Gradients:
        return self.updates[-1]


def uneven_trainer(
    model: Any, tokenizer: Any, settings: GRPOConfig, captured: GradientCapture, **options: Any
) -> Any:
    """Return a trainer over episodes of uneven lengths; `options` are those of `build_trainer`."""
    return build_trainer(
        model,
        tokenizer,
        settings,
        prompts(settings),
        client=FakeClient(after={"q0": 1, "q1": 3}),
        callbacks=[captured],
        max_grad_norm=1e9,
        **options,
    )


def measured_step(
    model: Any,
    tokenizer: Any,
    settings: GRPOConfig,
    prepare: Callable[[Any], None] = lambda trainer: None,
    **options: Any,
) -> Step:
    """Train one step of `uneven_trainer`, after `prepare(trainer)`."""
    captured, cells = GradientCapture(), 0
    trainer = uneven_trainer(model, tokenizer, settings, captured, **options)
    prepare(trainer)

    def count(_: Any, inputs: Any) -> None:
        nonlocal cells
        if torch.is_grad_enabled():
            cells += inputs[0].shape[:2].numel()

    layers = [one for one in trainer.model.modules() if type(one).__name__.endswith("DecoderLayer")]
    hook = layers[0].register_forward_pre_hook(count)
    _, rows = run_training_with_metrics(trainer)
    hook.remove()  # the model may be trained again
    return Step(next(row for row in rows if "grad_norm" in row), captured.all, cells)


def check_equal(found: Gradients, expected: Gradients, factor: float = 1.0) -> None:
    assert any(gradient.any() for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient * factor, atol=2e-6, rtol=2e-3)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, SMALL_BATCHES) for family in FAMILIES),
        ("qwen3", {"lora_rank": 4}),
        ("qwen3", {"beta": 0.1}),
        ("qwen3", {"gradient_checkpointing": True}),
        ("qwen3", {"lora_rank": 4, "gradient_checkpointing": True}),
    ],
    ids=str,
)
def test_the_update_is_trls(
    config: GRPOConfig, tmp_path: Path, family: str, options: dict[str, Any]
) -> None:
    """One step of both trainers from the same weights and episodes: the same gradients, to
    rounding."""
    if "lora_rank" in options:
        pytest.importorskip("peft")
    base, tokenizer = tmp_path / "base", tiny_tokenizer(family)
    tiny_model(family).save_pretrained(base)
    settings = short_training(config, tmp_path, **options)

    def update(kind: type[Any]) -> Step:
        torch.manual_seed(1)  # of LoRA's adapters
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        return measured_step(
            model, tokenizer, settings, lambda trainer: setattr(trainer, "__class__", kind)
        )

    theirs, ours = update(GRPOTrainer), update(LengthSortedGRPOTrainer)
    for name in ("reward", "loss", "grad_norm"):
        assert ours.row[name] == pytest.approx(theirs.row[name], rel=1e-4, abs=1e-7), name
    check_equal(ours.gradients, theirs.gradients)
    if "gradient_checkpointing" not in options:
        assert ours.cells < 0.9 * theirs.cells  # the prompt was shared


def test_several_updates_are_those_of_trl_on_their_rows_with_a_clipped_ratio(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """trl's own loss on each part of the rows, with the probabilities that sampled them as the old
    ones, after the updates before."""
    settings = short_training(
        config, tmp_path, updates_per_batch=2, learning_rate=1e-2, **SMALL_BATCHES
    )
    captured = GradientCapture()
    clipping = {"epsilon": 1e-3, "epsilon_high": 1e-3}
    trainer = uneven_trainer(model, tokenizer, settings, captured, **clipping)
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
        check_equal(found, {name: one.grad for name, one in trainer.model.named_parameters()})
        metrics = trainer._metrics["train"]["clip_ratio/region_mean"]
        ratios.append(sum(metrics[-2:]))
    assert ratios[0] == 0 < ratios[1], "only the second update is of older rows"


def test_rows_of_another_sampler_have_the_clipped_ratio_to_its_probabilities(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    settings = short_training(config, tmp_path)
    weights = {name: one.clone() for name, one in model.state_dict().items()}

    def update(difference: float) -> Step:
        """Do an update of rows whose sampler had log-probabilities lower by `difference`."""

        def prepare(trainer: Any) -> None:
            rollout, trainer._sampled_elsewhere = trainer.rollout_func, True

            def played(*arguments: Any) -> Any:
                columns = rollout(*arguments)
                for logprobs in columns["logprobs"]:
                    logprobs[:] = [value - difference for value in logprobs]
                return columns

            trainer.rollout_func = played

        model.load_state_dict(weights)
        return measured_step(model, tokenizer, settings, prepare)

    same = update(0.0)
    for difference, factor in ((0.1, math.exp(0.1)), (math.nan, 1.0)):  # nan: the sampler has none
        found = update(difference)
        check_equal(found.gradients, same.gradients, factor)
        known = 0.0 if math.isnan(difference) else difference
        assert found.row["sampling/logp_difference/mean"] == pytest.approx(known, abs=1e-4)
        assert found.row["clip_ratio/region_mean"] == 0
    assert update(3.0).row["clip_ratio/region_mean"] > 0.2  # exp(3) is above 1.28


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


def rewarded(settings: GRPOConfig, model: Any, tokenizer: Any, correct: Any) -> Step:
    return measured_step(model, tokenizer, settings, reward_funcs=(correct, lengths, lengths))


@pytest.mark.parametrize(
    "options",
    [
        SMALL_BATCHES,
        # idle rows beside others in one micro-batch, which share the prompt
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        {**SMALL_BATCHES, "updates_per_batch": 2, "learning_rate": 1e-3},
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
    skipping = {"scale_rewards": "batch", "skip_one_verdict_groups": True}
    settings = short_training(config, tmp_path, **skipping, **options)
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    ours = rewarded(settings, model, tokenizer, right_first)
    model.load_state_dict(weights)
    with monkeypatch.context() as patched:
        patched.setattr(length_sorting, "without_idle_rows", lambda batch: batch)
        all_rows = rewarded(settings, model, tokenizer, right_first)
    assert len(ours.updates) == len(all_rows.updates) == settings.updates_per_batch
    for found, expected in zip(ours.updates, all_rows.updates, strict=True):
        check_equal(found, expected)
    assert ours.cells < 0.7 * all_rows.cells
    row = ours.row
    assert row["one_verdict_groups"] == 0.5
    assert row["entropy"] > 0.5, "a mean over the rows that count"
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())


def test_a_group_of_one_verdict_teaches_by_its_costs_unless_it_is_skipped(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    settings = short_training(config, tmp_path, max_new_tokens=12)
    [taught] = rewarded(settings, model, tokenizer, none_right).updates
    assert any(one.any() for one in taught.values())
    skipping = settings.override(skip_one_verdict_groups=True)
    right = rewarded(skipping, model, tokenizer, all_right)
    assert right.row["one_verdict_groups"] == 1
    step = rewarded(skipping, model, tokenizer, none_right)
    [skipped] = step.updates
    assert skipped
    assert not any(one.any() for one in skipped.values())
    assert step.row["one_verdict_groups"] == 1
    assert "entropy" not in step.row, "of no token"


def test_a_process_skips_groups_of_its_own(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two processes; the first one's groups have the verdicts in the other order."""
    settings = short_training(config, tmp_path, skip_one_verdict_groups=True, **SMALL_BATCHES)
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    alone = rewarded(settings, model, tokenizer, right_first)
    model.load_state_dict(weights)
    score = LengthSortedGRPOTrainer._generate_and_score_completions

    def second(trainer: Any, inputs: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr("accelerate.Accelerator.process_index", 1)
            patched.setattr(
                "trl.trainer.grpo_trainer.gather", lambda rows: torch.cat([rows.roll(4, 0), rows])
            )
            return score(trainer, inputs)

    monkeypatch.setattr(LengthSortedGRPOTrainer, "_generate_and_score_completions", second)
    check_equal(rewarded(settings, model, tokenizer, right_first).gradients, alone.gradients)


def batch() -> dict[str, Any]:
    """Return three rows: prompts padded on the left, completions on the right, as trl pads them."""
    return {
        "prompt_ids": torch.tensor([[0, 0, 7], [0, 5, 6], [0, 0, 8]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0]]),
        "completion_mask": torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]),
        "tool_mask": torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]]),
        "advantages": torch.tensor([0.1, 0.2, 0.0]),
        "num_items_in_batch": torch.tensor(5),
        "ref_per_token_logps": None,
    }


def test_a_group_has_both_verdicts_whatever_was_lost() -> None:
    lost = math.nan
    groups = [[1, 1, 1], [0, 0, 0], [1, lost, 0], [1, lost, 1], [lost, lost, lost]]
    found = both_verdicts(torch.tensor(groups).flatten(), 3)
    assert found.view(-1, 3).tolist() == [[both] * 3 for both in (False, False, True, False, False)]


def test_each_update_has_as_many_rows_of_each_group() -> None:
    groups = torch.arange(3).repeat_interleave(4)  # 3 questions with 4 rollouts
    lengths = torch.tensor([1, 2, 3, 4, 1, 9, 3, 4, 1, 2, 3, 4])
    mask = (torch.arange(9) < lengths.unsqueeze(1)).long()
    parts = split_updates({"completion_mask": mask, "prompt_mask": mask[:, :1], "group": groups}, 2)
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
    assert found["advantages"].tolist() == pytest.approx([0.1, 0.2, 0.0])
    empty = batch() | {"completion_mask": torch.zeros(3, 4, dtype=torch.long)}
    assert trim(empty)["completion_ids"].shape == (3, 1)  # trl needs a column
