"""`rollout_func` in both of its forms: TRL's, and one for a plain model in a notebook or a script.

rollout_func(prompts, trainer)                   TRL's: a dict of columns, for GRPOTrainer
rollout_func(prompts, model, tokenizer, config)  a list with one dict per prompt
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from trainer.config.settings import GRPOConfig
from trainer.rollout.dataset import Prompt, as_prompts, question_id_of
from trainer.rollout.episode import EpisodeObserver, occurrences
from trainer.rollout.generators.base import Generator
from trainer.rollout.loop import check_lost_rows, play_episodes, sampling
from trainer.rollout.rewards import both_verdicts
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.rollout.servers import serving
from trainer.rollout.turns import EpisodeClient
from trainer.runtime.ranks import Ranks

# TRL requires the first three and takes env_mask as the mask of the loss; it passes the others to
# the reward functions, one value per row.
TRL_COLUMNS = (
    *("prompt_ids", "completion_ids", "logprobs", "env_mask", "question_id"),
    *("correctness", "progress", "operational", "outcome", "steps", "parse_failures"),
)

OnRows = Callable[[list[RolloutRow], Any], None]
Sampler = Callable[[Any], Generator]  # TRL trainer -> a generator with its present weights


def rollout_func(
    prompts: Sequence[str | Prompt],
    model: Any,
    tokenizer: Any = None,
    config: GRPOConfig | None = None,
    *,
    client: EpisodeClient | None = None,
    stats: RolloutStats | None = None,
    on_rows: OnRows | None = None,
    ranks: Ranks | None = None,
    sampler: Sampler | None = None,
    observer: EpisodeObserver | None = None,
) -> Any:
    """Play one episode per prompt, all at once, with a transformers model or a TRL trainer.

    A prompt is the text of one question of `config`'s data (`PromptError` for a text of no question
    or several), or chat messages of `load_question_prompts`. With a `tokenizer`, `model` is a
    transformers model, and the result is one dict per prompt: `question`, `correct` (None for a
    lost episode) and the fields of `RolloutRow`. It plays on `client`, or else on
    `serving(config)`.

    Without one, `model` is a TRL trainer, in each process with its part of the batch; the result is
    a dict of columns. `on_rows(rows, trainer)` gets the rows of the whole batch, those of other
    processes without ids. `sampler` returns what samples the turns in place of the model.
    """
    if config is None:
        raise ValueError(
            "rollout_func needs a GRPOConfig: pass config, or bind it with functools.partial "
            "for a TRL trainer"
        )
    chats, stats = as_prompts(prompts, config), stats or RolloutStats()
    play = partial(play_episodes, client=client, stats=stats, observer=observer)
    if tokenizer is None:
        if not hasattr(model, "processing_class"):
            raise ValueError("rollout_func needs a tokenizer beside the model, or a TRL trainer")
        return _for_trl(chats, model, config, play, stats, on_rows, ranks or Ranks(), sampler)
    with (
        serving(config) if client is None else nullcontext(client) as client,
        sampling(model, config, f"playing {len(chats)} episodes"),
    ):
        rows = play(chats, model, tokenizer, config, client=client)
    return [
        {
            "question": str(chat[-1]["content"]).removeprefix("Question: "),
            "correct": None if row.correctness is None else row.correctness == 1.0,
            **asdict(row),
        }
        for chat, row in zip(chats, rows, strict=True)
    ]


def step_seed(config: GRPOConfig, step: int) -> int:
    return int(np.random.SeedSequence((config.seed, step)).generate_state(1, np.uint64)[0])


def _for_trl(
    chats: Sequence[Prompt],
    trainer: Any,
    config: GRPOConfig,
    play: Callable[..., list[RolloutRow]],
    stats: RolloutStats,
    on_rows: OnRows | None,
    ranks: Ranks,
    sampler: Sampler | None,
) -> dict[str, list[Any]]:
    from trl.models import unwrap_model_for_generation

    step = trainer.state.global_step
    shares = ranks.each(lambda: [question_id_of(chat) for chat in chats])
    first = sum(map(len, shares[: ranks.index]))
    repeats = occurrences([name for share in shares for name in share])[first:][: len(chats)]
    generator = None if sampler is None else sampler(trainer)

    def play_own() -> tuple[list[RolloutRow], float]:
        with ExitStack() as stack:
            model = None
            if generator is None:
                model = stack.enter_context(
                    unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator)
                )
                doing = f"playing the {len(chats)} episodes of step {step + 1}"
                # the trainer's own autocast, so that both compute the same log-probabilities
                number_format = trainer.accelerator.autocast()
                stack.enter_context(sampling(model, config, doing, number_format))
            rows = play(
                chats,
                model,
                trainer.processing_class,
                config,
                seed=step_seed(config, step),
                generator=generator,
                check_lost=False,
                repeats=repeats,
            )
            return rows, time.perf_counter()

    own, played = ranks.together(play_own)
    rows = own
    if ranks.count > 1:
        shared = ranks.gather([row.without_ids() for row in own])
        rows = [row for share in shared for row in share]
        waited = time.perf_counter() - played
        stats.rank_wait_s += waited
        stats.rollout_s += waited
    check_lost_rows(rows, config)
    if on_rows is not None:
        on_rows(rows, trainer)
    both = both_verdicts((row.question_id, row.correctness) for row in rows)
    return {
        **{name: [getattr(row, name) for row in own] for name in TRL_COLUMNS},
        "both_verdicts": [row.question_id in both for row in own],
    }
