"""Checkpoints of whole steps, also when training stops in the middle of one."""

import json
import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainerCallback

from trainer.config.settings import GRPOConfig
from trainer.errors import TrainingDiverged
from trainer.runtime.lora import is_adapter, save_settings
from trainer.runtime.ranks import Ranks


class Guard(TrainerCallback):  # type: ignore[misc]
    """Keeps training resumable: stops after the step in which any process received a signal, and
    before an update whose gradient is not finite."""

    def __init__(self, ranks: Ranks, config: GRPOConfig) -> None:
        self.ranks, self.config = ranks, config
        self.updating = False  # whether the weights are those of a part of a step
        self.metrics: dict[str, list[Any]] = {}  # trl's own, since the last log event
        self._diverged_step = 0  # the step whose logged loss is not finite
        self._whole_steps: dict[str, int] = {}  # values in `metrics` that belong to whole steps
        self._tokens_seen = 0
        self._rng: dict[str, Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._rng, self._tokens_seen = _rng_states(), state.num_input_tokens_seen

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise `TrainingDiverged` if a gradient is not finite. fp16's loss scaling produces
        infinite gradients on purpose and skips those steps itself."""
        gradients = [one.grad for one in kwargs["model"].parameters() if one.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not args.fp16 and not torch.isfinite(norm):
            raise diverged("gradient", state.global_step + 1, args.learning_rate)
        self.updating = True

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.updating = False

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not math.isfinite(kwargs.get("logs", {}).get("loss", 0.0)):
            self._diverged_step = state.global_step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise `TrainingDiverged` if the last loss was not finite: fp16 would skip all later
        steps."""
        if self._diverged_step:
            raise diverged("loss", self._diverged_step, args.learning_rate)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._rng, self._tokens_seen = _rng_states(), state.num_input_tokens_seen
        self._whole_steps = {name: len(values) for name, values in self.metrics.items()}
        if self.ranks.anywhere(self.ranks.interrupts.requested):
            control.should_save = control.should_training_stop = True
        if control.should_save or control.should_training_stop:
            # a resumed run loses what was not logged
            control.should_log = True
        return control

    def restore(self, state: Any) -> None:
        if self._rng is None:
            return
        state.num_input_tokens_seen = self._tokens_seen
        for name, values in self.metrics.items():
            del values[self._whole_steps.get(name, 0) :]
        random.setstate(self._rng["python"])
        np.random.set_state(self._rng["numpy"])
        torch.random.set_rng_state(self._rng["torch"])
        if self._rng["cuda"] is not None:
            torch.cuda.set_rng_state_all(self._rng["cuda"])


def diverged(what: str, step: int, learning_rate: float) -> TrainingDiverged:
    return TrainingDiverged(
        f"the {what} of step {step} is not a number; the run's checkpoints keep the weights from "
        f"before it. Start again with a learning rate below {learning_rate:g}: "
        f"--set learning_rate={learning_rate / 3:.1g}"
    )


def guard_of(trainer: Any) -> Guard:
    return next(one for one in trainer.callback_handler.callbacks if isinstance(one, Guard))


def _rng_states() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.random.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None,
    }


class WholeCheckpoints(Trainer):  # type: ignore[misc]
    """Mixed into a trainer: a checkpoint that can't be written whole leaves nothing behind, and one
    that was written in float16 resumes in any number format."""

    def _load_scaler(self, checkpoint: str | None) -> None:
        if self.accelerator.scaler is not None:  # only float16 scales its loss
            super()._load_scaler(checkpoint)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        try:
            super()._save_checkpoint(model, trial)
            if self.args.should_save and is_adapter(folder):
                save_settings(self.accelerator.unwrap_model(model), folder)
        except Exception:
            try:
                json.loads((folder / "trainer_state.json").read_bytes())  # written last
            except (OSError, ValueError):
                shutil.rmtree(folder, ignore_errors=True)
            raise


def checkpoint_now(trainer: Any, *, alone: bool = False) -> Path | None:
    """Save a checkpoint of the last whole step, and return its folder; None if training had not
    started or an update is under way.

    Steps that were not logged yet are logged first, without a loss. All processes call this. With
    `alone`, another process is gone and none is waited for.
    """
    folder = Path(trainer.args.output_dir) / f"checkpoint-{trainer.state.global_step}"
    guard = guard_of(trainer)
    started = trainer.optimizer is not None and trainer.lr_scheduler is not None
    if not started or guard.updating or (alone and not guard.ranks.main):
        return None
    saved = (folder / "trainer_state.json").is_file()
    if not (saved if alone else guard.ranks.gather(saved)[0]):
        guard.restore(trainer.state)
        logged = max((row["step"] for row in trainer.state.log_history), default=0)
        if trainer.state.global_step > logged:
            trainer.log({})
        if alone:
            trainer.store_flos = lambda: None  # it gathers from all processes
        # transformers has no public way to save outside its own loop
        trainer._save_checkpoint(trainer.model, None)
    return folder
