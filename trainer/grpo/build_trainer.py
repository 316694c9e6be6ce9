"""GRPO with trl, over rollouts that are played over HTTP. `grpo_job.py` adds measurements."""

import functools
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import PrinterCallback

from trainer.config.settings import ConfigError, GRPOConfig
from trainer.grpo.masked_trainer import MaskedGRPOTrainer
from trainer.rollout.adapters import Sampler, rollout_func
from trainer.rollout.dataset import check_training_questions, question_id_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.loop import EpisodeClient, RolloutStats
from trainer.rollout.rewards import REWARD_FUNCTIONS
from trainer.runtime.checkpoint import Guard
from trainer.runtime.lora import adapted, continues, lora_config
from trainer.runtime.precision import check_extras, shrink_frozen_weights
from trainer.runtime.ranks import Ranks, check_one_gpu, launched
from trainer.runtime.training import ignore_renamed, shared_arguments

log = logging.getLogger(__name__)

CLIPPED_ABOVE = 0.28  # a token's probability ratio, to 1 + this; below to 1 - 0.2, as in trl
# fields that these settings and transformers' or trl's have under the same name
GRPO_ONLY = (
    *("per_device_train_batch_size", "num_generations", "temperature", "beta", "scale_rewards"),
    "reward_weights",
)


def check_enough_questions(questions: int, config: GRPOConfig) -> None:
    needed = config.rollouts_per_step // config.num_generations
    if questions < needed:
        raise ConfigError(
            f"a step takes {needed} questions (per_device_train_batch_size "
            f"{config.per_device_train_batch_size} x gradient_accumulation_steps "
            f"{config.gradient_accumulation_steps} / num_generations {config.num_generations}), "
            f"but only {questions} are left after difficulty_filter: reduce one of the first two, "
            "such as with --set gradient_accumulation_steps=N"
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
    `reward_funcs` replace `REWARD_FUNCTIONS`, in their order; `on_rows`, `sampler` and `observer`
    are those of `rollout_func`; `trl_options` are fields of `trl.GRPOConfig`."""
    check_extras(config)
    if not launched():
        check_one_gpu(config, torch.cuda.device_count())
    check_training_questions((question_id_of(row["prompt"]) for row in prompts), config)
    check_enough_questions(len(prompts), config)
    if 0 < config.max_steps <= 3 * config.warmup_steps:
        log.warning(
            "the learning rate rises during %d of %d steps: reduce it with --set warmup_steps=N",
            min(config.warmup_steps, config.max_steps),
            config.max_steps,
        )
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
        trainer = MaskedGRPOTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=list(reward_funcs),
            args=trl_config(config, ranks.count, **trl_options),
            train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in prompts]).select(
                in_order(len(prompts), config)
            ),
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


def in_order(questions: int, config: GRPOConfig) -> list[int]:
    """Return the indices of the questions of all steps: whole steps of each epoch, which has an
    order of its own.

    trl's own sampler would start with the first epoch's order again when training resumes later.
    """
    per_step = config.rollouts_per_step // config.num_generations
    steps = questions // per_step  # of an epoch
    epochs = config.num_train_epochs if config.max_steps < 0 else -(-config.max_steps // steps)
    generator = torch.Generator().manual_seed(config.seed)
    orders = [torch.randperm(questions, generator=generator) for _ in range(epochs)]
    return torch.cat([order[: steps * per_step] for order in orders]).tolist()


def trl_config(config: GRPOConfig, processes: int = 1, **overrides: Any) -> trl.GRPOConfig:
    values: dict[str, Any] = {
        **shared_arguments(config),
        **{name: getattr(config, name) for name in GRPO_ONLY},
        "gradient_accumulation_steps": config.accumulation_steps(processes),
        "loss_type": "grpo",  # an episode counts by the mean over its tokens
        "epsilon_high": CLIPPED_ABOVE,
        "router_aux_loss_coef": 0.0,  # of a mixture of experts: it would need every token's logits
        "ddp_find_unused_parameters": False,  # every parameter of a causal LM takes part
        "max_completion_length": config.max_context_tokens,  # the rollout bounds rows, not TRL
        "shuffle_dataset": False,  # `in_order` does, once for all epochs
        "num_train_epochs": 1,
    }
    return trl.GRPOConfig(**{**values, **overrides})
