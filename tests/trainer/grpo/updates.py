"""Run one GRPO step and measure its updates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import TrainerCallback

from tests.trainer.conftest import FakeClient, prompts
from trainer.config import GRPOConfig
from trainer.grpo.train import build_trainer, run_training_with_metrics

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


def measured_step(
    model: Any,
    tokenizer: Any,
    settings: GRPOConfig,
    prepare: Callable[[Any], None] = lambda trainer: None,
    **options: Any,
) -> Step:
    """Train one step on episodes of uneven lengths, after `prepare(trainer)`.

    `options` are those of `build_trainer`.
    """
    captured, cells = GradientCapture(), 0
    trainer = build_trainer(
        model,
        tokenizer,
        settings,
        prompts(settings),
        client=FakeClient(after={"q0": 1, "q1": 3}),
        callbacks=[captured],
        max_grad_norm=1e9,
        **options,
    )
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
