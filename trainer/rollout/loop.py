"""Play episodes: all of a generation batch at once, over HTTP, token-exact.

    sample a turn per unfinished episode -> parse -> step all -> observations -> bridges -> repeat

`play_episodes` does all of it. `rollout_func` connects it to TRL; `play_scripted` plays
demonstrations and `sample_random_baseline` random actions.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from shared.client import ClientLimits, SQLEnvClient
from shared.errors import SQLEnvError
from trainer.config import GRPOConfig
from trainer.errors import RolloutError
from trainer.rollout.batch import EpisodeBatch, EpisodeClient, EpisodeObserver
from trainer.rollout.dataset import Prompt, prompt_of, question_id_of
from trainer.rollout.generators.base import Generator, Policy
from trainer.rollout.generators.policies import RandomPolicy, ScriptedPolicy
from trainer.rollout.row import RolloutRow, RolloutStats
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.runtime.out_of_memory import reporting_out_of_memory
from trainer.runtime.ranks import Ranks

__all__ = [
    "EpisodeClient",
    "RolloutStats",
    "open_client",
    "play_episodes",
    "play_scripted",
    "rollout_func",
    "sample_random_baseline",
]

SCRIPTED_BATCH = 512  # demonstrations played at once
LEAST_ATTEMPTS = 6  # even if server_wait_s is 0: about 5 s, for a connection that breaks
# TRL requires the first three; it passes the others to the reward functions, one value per row.
TRL_COLUMNS = (
    *("prompt_ids", "completion_ids", "logprobs", "env_mask", "question_id"),
    *("correctness", "progress", "operational", "outcome", "steps", "parse_failures"),
)


def play_episodes(
    prompts: Sequence[Prompt],
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    *,
    client: EpisodeClient | None = None,
    policy: Policy | None = None,
    greedy: bool = False,
    seed: int | None = None,
    stats: RolloutStats | None = None,
    generator: Generator | None = None,
    check_lost: bool = True,
    before: Mapping[str, int] | None = None,
    observer: EpisodeObserver | None = None,
) -> list[RolloutRow]:
    """Play one episode per prompt, all at once, and return their rows in order.

    `prompts` are chat messages whose user message holds `question_id` (`load_question_prompts`).
    `model` samples, on its device and in eval mode, unless a `generator` replaces it. With a
    `policy`, `model` may be None, and so may `tokenizer` (the rows then hold no ids). `client` is
    an open `SQLEnvClient(...).sync()`; None opens one on `config.server_urls`. The random stream of
    an episode depends on `seed` (default `config.seed`), its question and how often the question
    came before in `prompts`, never on the rest of the batch; `before` counts the questions that
    other processes play. `observer` sees the episodes while they are played.

    Raises `RolloutError` if infrastructure lost more than `config.max_lost_fraction` of the
    episodes; `check_lost=False` leaves that check to the caller.
    """
    if not prompts:
        return []
    stats = RolloutStats() if stats is None else stats
    seed = config.seed if seed is None else seed
    codec = None if tokenizer is None else codec_of(tokenizer)
    with open_client(config) if client is None else nullcontext(client) as client:
        batch = EpisodeBatch(prompts, seed, codec, config, client, stats, before, observer)
        start = time.perf_counter()
        if policy is not None:
            batch.reset()
            batch.play_policy(policy)
        else:
            if codec is None or (model is None and generator is None):
                raise ValueError("play_episodes needs a model and a tokenizer, or a policy")
            generator = generator or local_generator(model, codec, config, greedy=greedy)
            batch.reset()
            batch.play_generator(generator, codec)
        rows = [batch.row(episode) for episode in batch.episodes]
        stats.rollout_s += time.perf_counter() - start
    if check_lost:
        errors = [episode.lost for episode in batch.episodes if episode.lost is not None]
        check_lost_rows(rows, config, *errors[:1])
    return rows


def rollout_func(
    prompts: Sequence[Prompt],
    trainer: Any,
    *,
    config: GRPOConfig,
    client: EpisodeClient | None = None,
    stats: RolloutStats | None = None,
    on_rows: Callable[[list[RolloutRow], Any], None] | None = None,
    ranks: Ranks | None = None,
) -> dict[str, list[Any]]:
    """Play TRL's prompts: bind `config` and the rest with functools.partial.

    TRL repeats each prompt num_generations times, and gives each of several processes its part of
    the batch. An episode's random stream is the same for any number of processes.
    `on_rows(rows, trainer)` is called with the rows of the whole batch, those of other processes
    without their ids.
    """
    from trl.models import unwrap_model_for_generation

    ranks, stats = ranks or Ranks(), stats or RolloutStats()
    step = trainer.state.global_step
    seed = int(np.random.SeedSequence((config.seed, step)).generate_state(1, np.uint64)[0])
    shares = ranks.each(lambda: [question_id_of(prompt) for prompt in prompts])
    before = Counter(question_id for share in shares[: ranks.index] for question_id in share)
    was_training = trainer.model.training
    playing = f"playing the {len(prompts)} episodes of step {step + 1}"

    def play() -> list[RolloutRow]:
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            model.eval()
            try:
                # the trainer's own autocast, so that both compute the same log-probabilities
                with reporting_out_of_memory(config, playing), trainer.accelerator.autocast():
                    return play_episodes(
                        prompts,
                        model,
                        trainer.processing_class,
                        config,
                        client=client,
                        seed=seed,
                        stats=stats,
                        check_lost=False,
                        before=before,
                    )
            finally:
                model.train(was_training)

    own, played = ranks.together(lambda: (play(), time.perf_counter()))
    shared = own if ranks.count == 1 else [row.without_ids() for row in own]
    rows = [row for share in ranks.gather(shared) for row in share]
    waited = time.perf_counter() - played if ranks.count > 1 else 0.0
    stats.rank_wait_s += waited
    stats.rollout_s += waited
    check_lost_rows(rows, config)
    if on_rows is not None:
        on_rows(rows, trainer)
    return {name: [getattr(row, name) for row in own] for name in TRL_COLUMNS}


def play_scripted(
    scripts: Mapping[str, Sequence[str]],
    tokenizer: Any,
    config: GRPOConfig,
    client: EpisodeClient | None = None,
    *,
    stats: RolloutStats | None = None,
) -> list[RolloutRow]:
    """Play `scripts` (question id -> action texts) and return their rows in order.

    env_mask is 1 for the script's ids; logprobs are 0.0, since nothing sampled them.
    """
    policy, rows = ScriptedPolicy(scripts), list[RolloutRow]()
    prompts = [prompt_of(question_id, "", config) for question_id in scripts]
    with open_client(config) if client is None else nullcontext(client) as client:
        for first in range(0, len(prompts), SCRIPTED_BATCH):
            part = prompts[first : first + SCRIPTED_BATCH]
            rows += play_episodes(
                part, None, tokenizer, config, client=client, policy=policy, stats=stats
            )
    return rows


def sample_random_baseline(
    prompts: Sequence[Prompt],
    config: GRPOConfig,
    client: EpisodeClient | None = None,
    **options: Any,
) -> list[RolloutRow]:
    """Play random actions and return the rows, without ids: what chance alone achieves.

    `options` are those of `play_episodes`.
    """
    policy = RandomPolicy()
    return play_episodes(prompts, None, None, config, client=client, policy=policy, **options)


@contextmanager
def open_client(config: GRPOConfig, digest: str | None = None) -> Iterator[EpisodeClient]:
    """Open a client of the config's servers, and wait `config.server_wait_s` for lost ones.

    With the `digest` of the run's servers, an episode that could only be rebuilt on a server with
    other data or rules raises `DigestMismatch`.
    """
    limits = ClientLimits(max_attempts=LEAST_ATTEMPTS, patience_s=config.server_wait_s)
    with SQLEnvClient(config.server_urls, limits, digest=digest).sync() as client:
        yield client


def local_generator(
    model: Any, codec: ChatCodec, config: GRPOConfig, *, greedy: bool = False
) -> Generator:
    """Return a generator over a Hugging Face model in this process."""
    # imports torch and transformers, which policies don't need
    from trainer.rollout.generators.local import LocalGenerator

    declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None) or []
    ends = codec.stop_ids | set([declared] if isinstance(declared, int) else declared)
    return LocalGenerator(
        model,
        ends,
        max_new_tokens=config.max_new_tokens,
        max_context_tokens=config.max_context_tokens,
        temperature=config.temperature,
        greedy=greedy,
    )


def check_lost_rows(
    rows: Sequence[RolloutRow], config: GRPOConfig, cause: SQLEnvError | None = None
) -> None:
    """Raise `RolloutError` if more of a batch was lost than `config.max_lost_fraction` allows."""
    lost = [row.lost for row in rows if row.lost is not None]
    if len(lost) > config.max_lost_fraction * len(rows):
        raise RolloutError(
            f"{len(lost)} of {len(rows)} episodes were lost to infrastructure, more than "
            f"{100 * config.max_lost_fraction:.0f} %: check the servers at "
            f"{', '.join(config.server_urls)}, then resume from the last checkpoint. "
            f"The first error: {lost[0]}",
            lost=len(lost),
            episodes=len(rows),
        ) from cause
