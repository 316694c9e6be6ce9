"""GRPO with trl, over rollouts that are played over HTTP. `trainer.grpo.job` adds measurements."""

import functools
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RankLost
from trainer.grpo.checkpoint import Guard, checkpoint_now, guard_of
from trainer.rollout.adapters import Sampler, rollout_func
from trainer.rollout.dataset import check_training_questions, question_id_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.loop import EpisodeClient, RolloutStats
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.run.folder import checkpoint_step, read_json
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.lora import adapted, continues, lora_config, save_adapter
from trainer.runtime.out_of_memory import is_out_of_memory, out_of_memory
from trainer.runtime.precision import check_extras
from trainer.runtime.ranks import Ranks, check_one_gpu, launched, rank_lost


def check_enough_questions(questions: int, config: GRPOConfig) -> None:
    """Raise `ConfigError` if so many training questions don't fill one step."""
    needed = config.rollouts_per_step // config.num_generations
    if questions < needed:
        raise ConfigError(
            f"a step takes {needed} questions (per_device_train_batch_size "
            f"{config.per_device_train_batch_size} x gradient_accumulation_steps "
            f"{config.gradient_accumulation_steps} / num_generations {config.num_generations}), "
            f"but only {questions} are left after difficulty_filter: reduce one of the first two, "
            "such as with --set gradient_accumulation_steps=N",
            field="gradient_accumulation_steps",
        )


def build_trainer(
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    prompts: Sequence[Mapping[str, Any]],
    *,
    client: EpisodeClient | None = None,
    stats: RolloutStats | None = None,
    on_rows: Any = None,
    ranks: Ranks | None = None,
    callbacks: Sequence[Any] = (),
    reward_funcs: Sequence[Any] = REWARD_FUNCTIONS,
    sampler: Sampler | None = None,
    observer: EpisodeObserver | None = None,
    **trl_options: Any,
) -> Any:
    """Return a `trl.GRPOTrainer` over `prompts` (`load_question_prompts`) that plays with `client`.

    `on_rows(rows, trainer)` is called with every generation batch; `reward_funcs` replace
    `REWARD_FUNCTIONS`, in their order; `sampler` and `observer` are those of `rollout_func`;
    `trl_options` are fields of `trl.GRPOConfig`. Raises `ConfigError` if the questions don't fill
    one batch or may not be trained on, and where a single process sees several GPUs.
    """
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback

    from trainer.grpo.length_sorting import LengthSortedGRPOTrainer
    from trainer.grpo.trl_config import trl_config
    from trainer.runtime.precision import shrink_frozen_weights

    check_extras(config)
    if not launched():
        check_one_gpu(config, torch.cuda.device_count())
    check_training_questions((question_id_of(row["prompt"]) for row in prompts), config)
    check_enough_questions(len(prompts), config)
    ranks = ranks or Ranks()
    if goes_on := continues(config):
        model = adapted(model, config)
    shrink_frozen_weights(model, config)
    guard = Guard(ranks, config)
    rollout = functools.partial(
        rollout_func,
        config=config,
        client=client,
        stats=stats,
        on_rows=on_rows,
        ranks=ranks,
        sampler=sampler,
        observer=observer,
    )
    ignore_renamed()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental.*")
        trainer = LengthSortedGRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=list(reward_funcs),
            args=trl_config(config, ranks.count, **trl_options),
            train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in prompts]),
            rollout_func=rollout,
            peft_config=None if goes_on else lora_config(config),
            callbacks=[guard, *callbacks],
            updates=config.updates_per_batch,
            sampled_elsewhere=sampler is not None,
            skip_one_verdict_groups=config.skip_one_verdict_groups,
        )
    trainer.remove_callback(PrinterCallback)
    guard.metrics = trainer._metrics["train"]
    return trainer


def ignore_renamed() -> None:
    """Ignore warnings about names that transformers renamed, and that it and trl still use."""
    warnings.filterwarnings(
        "ignore", message=r".*gradient_checkpointing\w*` is deprecated.*", category=FutureWarning
    )


def save_trained(trainer: Any, path: Path) -> Any:
    """Save the model and the tokenizer to `path`, LoRA merged in and its adapter beside it, in
    adapter/; return the model."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if hasattr(model, "merge_and_unload"):
        if trainer.is_world_process_zero():
            save_adapter(model, path.parent / "adapter", guard_of(trainer).config)
        model.float()  # bfloat16 would round small changes away
        model = trainer.model = trainer.model_wrapped = model.merge_and_unload()
        model.requires_grad_(True)  # autocast keeps its casts of such weights only
    trainer.save_model(str(path))
    return model


def finished(checkpoint: Path, max_steps: int) -> bool:
    """Return whether a checkpoint is the end of its training; `max_steps` -1: as it planned."""
    planned = read_json(checkpoint / "trainer_state.json")["max_steps"]
    return checkpoint_step(checkpoint) >= (planned if max_steps < 0 else max_steps)


def train_from(trainer: Any, checkpoint: Path | None, max_steps: int) -> int:
    """Train to the end from `checkpoint`, or from the start; return the training steps done."""
    if checkpoint is not None and finished(checkpoint, max_steps):
        trainer._load_from_checkpoint(str(checkpoint))  # train() would do one more step
        return checkpoint_step(checkpoint)
    run_training_with_metrics(trainer, resume_from=checkpoint)
    return int(trainer.state.global_step)


def run_training_with_metrics(
    trainer: Any, *, resume_from: Path | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """Train to the end; return trl's output and one dict per log event.

    `resume_from` is a checkpoint folder of the same settings. If training is stopped by a signal
    (`Interrupted`), or by lost servers, a lost process, lack of memory or a diverging loss
    (`SQLEnvError`), the last whole step is saved, unless it stopped between the updates of a step.
    """
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
            if known is None and not is_out_of_memory(error):
                raise
            if known is None:
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
