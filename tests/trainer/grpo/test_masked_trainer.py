"""Updates with few logits and without idle rows: trl's own gradients, for less work.

And how a generation batch is split into updates and micro-batches.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOTrainer

from tests.trainer.conftest import FakeClient, short_training
from tests.trainer.model_families import FAMILIES, tiny_model, tiny_tokenizer
from tests.trainer.small_job import trainer_of
from trainer.config.settings import GRPOConfig
from trainer.grpo import masked_trainer
from trainer.grpo.masked_trainer import MaskedGRPOTrainer, counted, split_updates
from trainer.runtime.precision import compute_logits_in_float32
from trainer.runtime.training import run_training_with_metrics

SLOW = pytest.mark.slow
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
    return trainer_of(
        model,
        tokenizer,
        settings,
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
        ("qwen3", {**SMALL_BATCHES, "beta": 0.1}),
        pytest.param("qwen3", SMALL_BATCHES, marks=SLOW),
        *(pytest.param(one, SMALL_BATCHES, marks=SLOW) for one in FAMILIES if one != "qwen3"),
        pytest.param("qwen3", {"lora_rank": 4}, marks=SLOW),
        pytest.param("qwen3", {"gradient_checkpointing": True}, marks=SLOW),
        ("qwen3", {"lora_rank": 4, "gradient_checkpointing": True}),
    ],
    ids=str,
)
def test_the_update_is_trls(config, tmp_path, monkeypatch, family, options):
    """One step of both trainers from the same weights and episodes: the same gradients, to
    rounding."""
    if "lora_rank" in options:
        pytest.importorskip("peft")
    base, tokenizer = tmp_path / "base", tiny_tokenizer(family)
    tiny_model(family).save_pretrained(base)
    settings = short_training(config, tmp_path, **options)

    def update() -> Step:
        torch.manual_seed(1)  # of LoRA's adapters
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        return measured_step(model, tokenizer, settings)

    ours = update()
    monkeypatch.setattr(MaskedGRPOTrainer, "compute_loss", GRPOTrainer.compute_loss)
    theirs = update()
    for name in ("reward", "loss", "grad_norm"):
        assert ours.row[name] == pytest.approx(theirs.row[name], rel=1e-4, abs=1e-7), name
    check_equal(ours.gradients, theirs.gradients)
    if "gradient_checkpointing" not in options:
        assert ours.cells < 0.9 * theirs.cells  # the prompt was shared


def test_several_updates_are_those_of_trl_on_their_rows_with_a_clipped_ratio(
    config, model, tokenizer, tmp_path
):
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
    compute = trainer.compute_loss

    def recorded(own: Any, inputs: Any, **options: Any) -> Any:
        batches.append(inputs)
        states.append({name: one.detach().clone() for name, one in own.named_parameters()})
        return compute(own, inputs, **options)

    trainer.compute_loss = recorded
    run_training_with_metrics(trainer)
    assert trainer.state.global_step == 1
    assert len(captured.all) == 2
    ratios = []
    for update, found in enumerate(captured.all):
        trainer.model.load_state_dict(states[2 * update], strict=False)
        trainer.model.zero_grad()
        trainer.current_gradient_accumulation_steps = 2
        for inputs in batches[2 * update : 2 * update + 2]:
            theirs = {**inputs, "old_per_token_logps": inputs["sampling_per_token_logps"]}
            GRPOTrainer.compute_loss(trainer, trainer.model, theirs).backward()
        check_equal(found, {name: one.grad for name, one in trainer.model.named_parameters()})
        metrics = trainer._metrics["train"]["clip_ratio/region_mean"]
        ratios.append(sum(metrics[-2:]))
    assert ratios[0] == 0 < ratios[1], "only the second update is of older rows"


def test_the_gradients_of_every_update_are_clipped(config, model, tokenizer, tmp_path):
    settings = short_training(config, tmp_path, updates_per_batch=2, **SMALL_BATCHES)
    captured, client = GradientCapture(), FakeClient(after={"q0": 1, "q1": 3})
    options = {"callbacks": [captured], "max_grad_norm": 1e-3}
    run_training_with_metrics(trainer_of(model, tokenizer, settings, client=client, **options))
    norms = [torch.nn.utils.get_total_norm(one.values()).item() for one in captured.all]
    assert norms == pytest.approx([1e-3] * 2, rel=0.01)


def test_rows_of_another_sampler_have_the_clipped_ratio_to_its_probabilities(
    config, model, tokenizer, tmp_path
):
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
    config, model, tokenizer, tmp_path, dtype, bound
):
    settings = short_training(config, tmp_path, dtype=dtype, max_new_tokens=12)
    compute_logits_in_float32(model, settings)
    trainer = trainer_of(model, tokenizer, settings)
    compute = trainer._compute_loss
    differences: list[torch.Tensor] = []

    def watched(model: Any, inputs: dict[str, torch.Tensor]) -> Any:
        trained = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        found = model().log_probs - inputs["sampling_per_token_logps"]
        differences.append(found[trained].detach())
        return compute(model, inputs)

    trainer._compute_loss = watched
    run_training_with_metrics(trainer)
    found = torch.cat(differences).abs()
    assert len(found) > 50
    assert found.max() < bound


def lengths(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Rewards that differ within every group."""
    return [len(ids) / 100 for ids in completion_ids]


def judged(settings: GRPOConfig, model: Any, tokenizer: Any, *, both: int) -> Step:
    """Train a step in which only the first `both` groups have a right and a wrong episode."""

    def prepare(trainer: Any) -> None:
        rollout = trainer.rollout_func

        def played(*arguments: Any) -> Any:
            columns = rollout(*arguments)
            right = both * settings.num_generations
            return columns | {
                "both_verdicts": [row < right for row in range(len(columns["steps"]))]
            }

        trainer.rollout_func = played

    return measured_step(model, tokenizer, settings, prepare, reward_funcs=(lengths,) * 3)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SMALL_BATCHES, marks=SLOW),
        # idle rows beside others in one micro-batch, which share the prompt
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        {**SMALL_BATCHES, "updates_per_batch": 2, "learning_rate": 1e-3},
    ],
    ids=str,
)
def test_an_update_is_the_same_without_idle_rows(
    config, model, tokenizer, tmp_path, monkeypatch, options
):
    skipping = {"scale_rewards": "batch", "skip_one_verdict_groups": True}
    settings = short_training(config, tmp_path, **skipping, **options)
    weights = {name: one.clone() for name, one in model.state_dict().items()}
    ours = judged(settings, model, tokenizer, both=1)
    model.load_state_dict(weights)
    with monkeypatch.context() as patched:
        patched.setattr(masked_trainer, "counted", lambda batch, idle: counted(batch, idle=True))
        all_rows = judged(settings, model, tokenizer, both=1)
    assert len(ours.updates) == len(all_rows.updates) == settings.updates_per_batch
    for found, expected in zip(ours.updates, all_rows.updates, strict=True):
        check_equal(found, expected)
    assert ours.cells < 0.7 * all_rows.cells
    assert ours.row["entropy"] > 0.5, "a mean over the rows that count"
    assert not any(isinstance(value, float) and math.isnan(value) for value in ours.row.values())


def test_a_group_of_one_verdict_teaches_by_its_costs_unless_it_is_skipped(
    config, model, tokenizer, tmp_path
):
    settings = short_training(config, tmp_path, max_new_tokens=12)
    taught = judged(settings, model, tokenizer, both=0)
    assert any(one.any() for one in taught.gradients.values())
    skipped = judged(settings.override(skip_one_verdict_groups=True), model, tokenizer, both=0)
    assert skipped.gradients
    assert not any(one.any() for one in skipped.gradients.values())
    assert "entropy" not in skipped.row, "of no token"


def test_each_update_has_as_many_rows_of_each_group_and_the_longest_come_first():
    groups = torch.arange(3).repeat_interleave(4)  # 3 questions with 4 rollouts
    lengths = torch.tensor([1, 2, 3, 4, 1, 9, 3, 4, 1, 2, 3, 4])
    mask = (torch.arange(9) < lengths.unsqueeze(1)).long()
    batch = {
        "completion_mask": mask,
        "prompt_mask": mask[:, :1],
        "advantages": torch.ones(12).where(lengths != 9, 0),
        "group": groups,
        "num_items_in_batch": torch.tensor(5),
    }
    for idle, second in ((False, [4, 4, 4, 2, 2, 9]), (True, [9, 4, 4, 4, 2, 2])):
        parts = split_updates(batch, 2, idle=idle)
        found = [part["completion_mask"].sum(1).tolist() for part in parts]
        assert found == [[3, 3, 3, 1, 1, 1], second]
        assert all(sorted(part["group"].tolist()) == [0, 0, 1, 1, 2, 2] for part in parts)
        assert all(part["num_items_in_batch"] == 5 for part in parts)
