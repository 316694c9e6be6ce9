"""What every training by transformers shares: its arguments, training from a checkpoint, saving."""

import json
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from shared.errors import SQLEnvError
from trainer.config.settings import GRPOConfig
from trainer.errors import RankLost
from trainer.runtime.checkpoint import checkpoint_now, guard_of
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.lora import save_adapter
from trainer.runtime.out_of_memory import is_out_of_memory, out_of_memory
from trainer.runtime.precision import precision
from trainer.runtime.ranks import rank_lost

NO_SAVE_STEPS = 10**9  # with save_steps 0, transformers still saves the last step

CHECKPOINTS_KEPT = 2


SHARED = (
    *("output_dir", "num_train_epochs", "max_steps", "learning_rate", "warmup_steps"),
    *("seed", "logging_steps"),
)


def shared_arguments(config: GRPOConfig) -> dict[str, Any]:
    device, dtype = precision(config.device, config.dtype)
    # transformers renamed the switch, and warns about the old name
    checkpointing = "activation_checkpointing"
    if checkpointing not in {one.name for one in fields(TrainingArguments)}:
        checkpointing = "gradient_checkpointing"
    return {
        **{name: getattr(config, name) for name in SHARED},
        "lr_scheduler_type": config.lr_scheduler,
        "save_strategy": "steps",
        "save_steps": config.save_steps or NO_SAVE_STEPS,
        "save_total_limit": CHECKPOINTS_KEPT,
        "logging_nan_inf_filter": False,  # it would replace a NaN with the mean of earlier losses
        "disable_tqdm": True,  # the job shows its own progress
        "bf16": dtype is torch.bfloat16,
        "fp16": dtype is torch.float16,
        "use_cpu": device == "cpu",
        "dataloader_pin_memory": device != "cpu",
        "report_to": config.report_to or "none",
        checkpointing: config.gradient_checkpointing,
    }


def ignore_renamed() -> None:
    """Ignore warnings about names that transformers renamed, and that it and trl still use."""
    warnings.filterwarnings(
        "ignore", message=r".*gradient_checkpointing\w*` is deprecated.*", category=FutureWarning
    )


def save_trained(trainer: Any, path: Path) -> Any:
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if hasattr(model, "merge_and_unload"):
        if trainer.is_world_process_zero():
            save_adapter(model, path.parent / "adapter", guard_of(trainer).config)
        model.float()  # bfloat16 would round small changes away
        model = trainer.model = trainer.model_wrapped = model.merge_and_unload()
        model.requires_grad_(True)  # autocast keeps its casts of such weights only
    trainer.save_model(str(path))
    return model


def _state_of(checkpoint: Path) -> dict[str, Any]:
    return dict(json.loads((checkpoint / "trainer_state.json").read_bytes()))


def finished(checkpoint: Path, max_steps: int) -> bool:
    """Return whether a checkpoint is the end of its training; `max_steps` -1: as it planned."""
    state = _state_of(checkpoint)
    return bool(state["global_step"] >= (state["max_steps"] if max_steps < 0 else max_steps))


def train_from(trainer: Any, checkpoint: Path | None, max_steps: int) -> int:
    if checkpoint is not None and finished(checkpoint, max_steps):
        trainer._load_from_checkpoint(str(checkpoint))  # train() would do one more step
        return int(_state_of(checkpoint)["global_step"])
    run_training_with_metrics(trainer, resume_from=checkpoint)
    return int(trainer.state.global_step)


def run_training_with_metrics(
    trainer: Any, *, resume_from: Path | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """Train to the end, from the checkpoint folder `resume_from`; return trl's output and a dict
    per log event. If a signal (`Interrupted`), or lost servers, a lost process, lack of memory or a
    diverging loss (`SQLEnvError`) stops it, the last whole step is saved, unless it stopped between
    the updates of a step."""
    guard = guard_of(trainer)
    ranks = guard.ranks
    with ranks.interrupts.deferred():
        try:
            start = str(resume_from) if resume_from else None
            output = trainer.train(resume_from_checkpoint=start)
        except Interrupted as stop:
            if stop.clean:
                checkpoint_now(trainer)
            raise
        except SQLEnvError as error:
            checkpoint_now(trainer, alone=isinstance(error, RankLost))
            raise
        except (MemoryError, OSError, RuntimeError) as error:
            known: SQLEnvError | None = rank_lost(error)  # in a collective: the weights are whole
            if known is None:
                if not is_out_of_memory(error):
                    raise
                doing = f"updating the weights in step {trainer.state.global_step + 1}"
                known = out_of_memory(guard.config, doing, error)
                if not ranks.main:  # the command prints the errors of process 0
                    print(f"error: process {ranks.index}: {known.message}", file=sys.stderr)
                trainer.model.zero_grad(set_to_none=True)
            checkpoint_now(trainer, alone=ranks.count > 1)
            raise known from error
    if ranks.anywhere(ranks.interrupts.requested):
        raise Interrupted
    return output, [dict(row) for row in trainer.state.log_history]
