"""Training again from a finished run's start: with other rewards, settings or data."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

from benchmarks.learning.bench import Bench
from shared.console import percent
from trainer.config import GRPOConfig
from trainer.grpo.metrics_log import MetricsCallback, spent_at
from trainer.grpo.resume import drop_after
from trainer.grpo.train import build_trainer, train_from
from trainer.rollout.loop import RolloutStats
from trainer.rollout.rewards import REWARD_FUNCTIONS, Reward
from trainer.run.console import bar
from trainer.run.cost import Spent
from trainer.run.folder import Run, checkpoint_step
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.ranks import Ranks

RewardFunction = Callable[..., list[Reward]]


@dataclass(frozen=True)
class Trained:
    """A trained model, the optimizer steps done, and what they took in all sessions."""

    model: Any
    tokenizer: Any
    steps: int
    spent: Spent


class CPUBudget(TrainerCallback):  # type: ignore[misc]
    """Ends training, with a checkpoint, at the step in which it has taken `cpu_s` CPU-seconds.

    They are those that `log` counts: of this process, in whole steps. It stands after `log` among
    the callbacks. With `falling`, the learning rate of a step is multiplied by the share of `cpu_s`
    that is left when it begins; metrics.jsonl shows the rate before that.
    """

    def __init__(self, log: MetricsCallback, cpu_s: float, falling: bool = False) -> None:
        self._log, self._cpu_s, self._falling = log, cpu_s, falling

    def on_step_begin(
        self,
        args: Any,
        state: Any,
        control: Any,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        **kwargs: Any,
    ) -> None:
        if self._falling:
            left = 1 - self._log.spent.cpu_s / self._cpu_s
            rates = lr_scheduler.get_last_lr()  # a checkpoint may hold the optimizer's falling ones
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = left * rate

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self._log.spent.cpu_s >= self._cpu_s:
            control.should_log = control.should_save = control.should_training_stop = True
        return control


def train(
    bench: Bench,
    folder: Run,
    config: GRPOConfig,
    title: str,
    *,
    reward_funcs: Sequence[RewardFunction] = REWARD_FUNCTIONS,
    cpu_s: float = math.inf,
) -> Trained:
    """Train `config.model_name` on the bench's training questions, in `folder`.

    Ends after `config.max_steps`, or earlier at the step in which the CPU-seconds of training reach
    `cpu_s`; a linear learning rate then falls with that time. Resumes from the last checkpoint in
    `folder`.
    """
    model, tokenizer = load_model_and_tokenizer(config)
    checkpoint = folder.last_checkpoint()
    done = checkpoint_step(checkpoint) if checkpoint else 0
    drop_after(folder, done)
    stats, spent = RolloutStats(), spent_at(checkpoint)
    with bar(bench.console, title) as progress:

        def on_progress(step: int, steps: int, row: Mapping[str, Any]) -> None:
            if "success" not in row:
                return
            note = f"success {percent(row['success'])}"
            if math.isfinite(cpu_s):  # the number of steps is not known
                note, steps = f"step {step} {note}", math.ceil(cpu_s)
                step = min(steps, round(log.spent.cpu_s))
            progress.to(step, note, steps)

        log = MetricsCallback(folder, bench.inputs.book, stats, on_progress, spent=spent)
        trainer = build_trainer(
            model,
            tokenizer,
            config,
            bench.inputs.train,
            client=bench.connection.client,
            stats=stats,
            on_rows=log.rows,
            ranks=Ranks(bench.interrupts),
            callbacks=[log, CPUBudget(log, cpu_s, config.lr_scheduler == "linear")],
            reward_funcs=reward_funcs,
            output_dir=str(folder.checkpoints),
        )
        over = spent.cpu_s >= cpu_s
        steps = train_from(trainer, checkpoint, done if over else config.max_steps)
    trained = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    return Trained(trained, tokenizer, steps, log.spent)
