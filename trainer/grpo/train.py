"""GRPO by trl, over rollouts that are played over HTTP.

`build_trainer` makes a `trl.GRPOTrainer`; `run_training_with_metrics` trains it and leaves a
checkpoint however training ends. `trainer.grpo.job` puts measurements and a run's folder around
them.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RankLost, RunError
from trainer.grpo.callbacks import Guard, checkpoint_now, guard_of
from trainer.rollout.dataset import check_training_questions, question_id_of
from trainer.rollout.loop import EpisodeClient, RolloutStats, rollout_func
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.run.folder import checkpoint_step, read_json
from trainer.runtime.interrupt import Interrupted
from trainer.runtime.optional_packages import check_extras, lora_config
from trainer.runtime.out_of_memory import is_out_of_memory, out_of_memory
from trainer.runtime.ranks import Ranks, rank_lost

NO_SAVE_STEPS = 10**9  # with save_steps 0, TRL still saves the last step
CHECKPOINTS_KEPT = 2


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
    **trl_options: Any,
) -> Any:
    """A `trl.GRPOTrainer` over `prompts` (rows of `load_question_prompts`) that plays its episodes
    with `client`.

    `on_rows(rows, trainer)` sees every generation batch; `stats` adds them up; `ranks` are the
    processes that share them, and the signals that may stop them; `reward_funcs` are the three that
    `config.to_trl` weights, in the order of `REWARD_FUNCTIONS`; `trl_options` are fields of
    `trl.GRPOConfig` that win over `config`'s. `ConfigError` where the questions don't fill one
    batch, or may not be trained on.
    """
    from datasets import Dataset
    from transformers import PrinterCallback

    from trainer.grpo.length_sorting import LengthSortedGRPOTrainer

    check_extras(config)
    check_training_questions((question_id_of(row["prompt"]) for row in prompts), config)
    questions_per_step = config.rollouts_per_step // config.num_generations
    if len(prompts) < questions_per_step:
        raise ConfigError(
            f"a step takes {questions_per_step} questions (per_device_train_batch_size x gradient_accumulation_steps / "
            f"num_generations), but only {len(prompts)} are left by difficulty_filter: make the first smaller",
            field="per_device_train_batch_size",
        )
    options = {
        "save_strategy": "steps",
        "save_steps": config.save_steps or NO_SAVE_STEPS,
        "save_total_limit": CHECKPOINTS_KEPT,
        "logging_nan_inf_filter": False,  # it would show the mean of earlier losses for a NaN
        "disable_tqdm": True,  # the job shows its own progress
        **trl_options,
    }
    ranks = ranks or Ranks()
    rollout = functools.partial(
        rollout_func, config=config, client=client, stats=stats, on_rows=on_rows, ranks=ranks
    )
    # transformers' own use of a name that it renamed
    warnings.filterwarnings(
        "ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning
    )
    guard = Guard(ranks, config)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental.*")
        trainer = LengthSortedGRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=list(reward_funcs),
            args=config.to_trl(ranks.count, **options),
            train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in prompts]),
            rollout_func=rollout,
            peft_config=lora_config(config),
            callbacks=[guard, *callbacks],
        )
    trainer.remove_callback(PrinterCallback)
    guard.metrics = trainer._metrics["train"]
    return trainer


def save_trained(trainer: Any, path: Path) -> Any:
    """Save the trained model and its tokenizer as `load_model_and_tokenizer` reads them; the model,
    LoRA merged in."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    if hasattr(model, "merge_and_unload"):
        model = trainer.model = trainer.model_wrapped = model.merge_and_unload()
    trainer.save_model(str(path))
    return model


def finished(checkpoint: Path | None, max_steps: int) -> bool:
    """Whether a checkpoint is at the end of its training. `max_steps` -1 stands for what the
    checkpoint planned."""
    if checkpoint is None:
        return False
    planned = (
        int(read_json(checkpoint / "trainer_state.json")["max_steps"])
        if max_steps < 0
        else max_steps
    )
    return checkpoint_step(checkpoint) >= planned


def run_training_with_metrics(
    trainer: Any, *, resume_from: Path | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """Train to the end. trl's output, and a dict for each log event.

    `trainer` is `build_trainer`'s. `resume_from` is a checkpoint folder of the same settings.
    Training that a signal (`Interrupted`), lost servers, a lost process, a lack of memory or a
    diverging loss (`SQLEnvError`) ends leaves a checkpoint of the last whole step, and the
    exception goes on.
    """
    if resume_from is not None and not (resume_from / "trainer_state.json").is_file():
        raise RunError(f"{resume_from} is not a whole checkpoint: it has no trainer_state.json")
    guard = guard_of(trainer) or Guard(Ranks())
    ranks = guard.ranks
    with ranks.interrupts.deferred():
        try:
            output = trainer.train(resume_from_checkpoint=str(resume_from) if resume_from else None)
        except Interrupted as stop:
            if stop.clean:
                checkpoint_now(trainer)
            raise
        except SQLEnvError as error:
            checkpoint_now(trainer, alone=isinstance(error, RankLost))
            raise
        except (MemoryError, OSError, RuntimeError) as error:
            if is_out_of_memory(error):
                told = out_of_memory(
                    guard.config,
                    f"updating the weights in step {trainer.state.global_step + 1}",
                    error,
                )
                trainer.model.zero_grad(set_to_none=True)
                checkpoint_now(trainer, alone=ranks.count > 1)
                raise told from error
            if not isinstance(error, RuntimeError):
                raise
            if (lost := rank_lost(error)) is None:
                raise
            # an update that broke off in a collective has not touched the weights
            checkpoint_now(trainer, alone=True)
            raise lost from error
    if ranks.anywhere(ranks.interrupts.requested):
        raise Interrupted
    return output, [dict(row) for row in trainer.state.log_history]
