"""Plays episodes: all of a generation batch at once, over HTTP, token-exact.

    generator samples a turn for every unfinished episode -> parse -> client.step_many -> observation -> bridge -> again

`play_episodes` is the whole of it. `rollout_func` hands it to TRL; `play_scripted` makes
demonstrations and `sample_random_baseline` measures luck through the same loop.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shared.client import ClientLimits, SQLEnvClient
from trainer.config import GRPOConfig
from trainer.rollout.batch import Batch, EpisodeClient, RolloutStats, too_many_lost
from trainer.rollout.dataset import Prompt, load_question_prompts, prompt_of, question_id_of
from trainer.rollout.generators.base import Generator, Policy
from trainer.rollout.generators.policies import RandomPolicy, ScriptedPolicy
from trainer.rollout.parsing import ParsedAction, parse_model_output
from trainer.rollout.row import RolloutRow
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.runtime.out_of_memory import reporting_out_of_memory
from trainer.runtime.ranks import Ranks

__all__ = [
    "EpisodeClient",
    "ParsedAction",
    "RolloutStats",
    "load_question_prompts",
    "open_client",
    "parse_model_output",
    "play_episodes",
    "play_scripted",
    "rollout_func",
    "sample_random_baseline",
]

SCRIPTED_BATCH = 512  # episodes in flight while demonstrations are made
LEAST_ATTEMPTS = 6  # even where server_wait_s is 0: about 5 s, for a connection that breaks
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
) -> list[RolloutRow]:
    """Play one episode for each prompt, all at once, and return a row for each, in order.

    `prompts` are chat messages whose user message holds `question_id` (`load_question_prompts`).
    `model` samples, on its device and in eval mode; a `generator` of your own replaces it. With
    `policy` it may be None, and then `tokenizer` may be too (the rows then hold no ids). `client`
    is an open `SQLEnvClient(...).sync()`; None opens one on `config.server_urls`. The random
    streams follow from `seed` (default `config.seed`), the question and how often it came before in
    `prompts`, never from the rest of the batch. `before` counts questions that other processes
    play.

    Raises `RolloutError` if infrastructure lost more than `config.max_lost_fraction` of the
    episodes; `check_lost=False` leaves that check to the caller.
    """
    if not prompts:
        return []
    if client is None:
        with open_client(config) as client:
            return play_episodes(
                prompts,
                model,
                tokenizer,
                config,
                client=client,
                policy=policy,
                greedy=greedy,
                seed=seed,
                stats=stats,
                generator=generator,
                check_lost=check_lost,
                before=before,
            )
    stats = RolloutStats() if stats is None else stats
    codec = None if tokenizer is None else codec_of(tokenizer)
    batch = Batch(
        prompts, config.seed if seed is None else seed, codec, config, client, stats, before
    )
    started = time.perf_counter()
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
    stats.rollout_s += time.perf_counter() - started
    if check_lost:
        batch.check_lost()
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
    """TRL's rollout function: bind `config` and the rest with functools.partial.

    TRL's prompts come already repeated, num_generations times each; with several processes each
    gets its part of the batch. Every episode of an optimiser step draws from a random stream of its
    own, the same on however many processes. `on_rows(rows, trainer)` sees the whole batch's rows,
    those of other processes without their ids.
    """
    from trl.models import unwrap_model_for_generation

    ranks, stats = ranks or Ranks(), stats or RolloutStats()
    seed = _stream_seed(config.seed, trainer.state.global_step)
    parts = ranks.each(lambda: [question_id_of(prompt) for prompt in prompts])
    before = Counter(question_id for part in parts[: ranks.index] for question_id in part)
    was_training = trainer.model.training

    def play() -> list[RolloutRow]:
        with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
            model.eval()
            try:
                # under the trainer's own autocast, so that both compute the same log-probabilities
                playing = (
                    f"playing the {len(prompts)} episodes of step {trainer.state.global_step + 1}"
                )
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
    if error := too_many_lost(
        [row.lost for row in rows if row.lost is not None], len(rows), config
    ):
        raise error
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
    """Rows of the scripted episodes, in the order of `scripts` (question id -> action texts).

    env_mask 1 marks the script's ids; their logprobs are 0.0, since nothing sampled them.
    """
    if client is None:
        with open_client(config) as client:
            return play_scripted(scripts, tokenizer, config, client, stats=stats)
    policy, ids, rows = ScriptedPolicy(scripts), list(scripts), []
    for start in range(0, len(ids), SCRIPTED_BATCH):
        prompts = [
            prompt_of(question_id, "", config)
            for question_id in ids[start : start + SCRIPTED_BATCH]
        ]
        rows += play_episodes(
            prompts, None, tokenizer, config, client=client, policy=policy, stats=stats
        )
    return rows


def sample_random_baseline(
    prompts: Sequence[Prompt],
    config: GRPOConfig,
    client: EpisodeClient | None = None,
    *,
    seed: int | None = None,
    stats: RolloutStats | None = None,
    check_lost: bool = True,
) -> list[RolloutRow]:
    """Rows of episodes that random actions played, without ids: what luck alone wins."""
    policy = RandomPolicy()
    return play_episodes(
        prompts,
        None,
        None,
        config,
        client=client,
        policy=policy,
        seed=seed,
        stats=stats,
        check_lost=check_lost,
    )


@contextmanager
def open_client(config: GRPOConfig, digest: str | None = None) -> Iterator[EpisodeClient]:
    """A client of the config's servers, which are awaited for `config.server_wait_s` when all of
    them are lost.

    With `digest`, the one of the run's servers, an episode that only servers of other data or rules
    could play is a `DigestMismatch`.
    """
    limits = ClientLimits(max_attempts=LEAST_ATTEMPTS, patience_s=config.server_wait_s)
    with SQLEnvClient(config.server_urls, limits, digest=digest).sync() as client:
        yield client


def local_generator(
    model: Any, codec: ChatCodec, config: GRPOConfig, *, greedy: bool = False
) -> Generator:
    """A generator over a Hugging Face model in this process."""
    # it imports torch and transformers, which policies don't need
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


def _stream_seed(seed: int, step: int) -> int:
    """One number for (run, optimiser step)."""
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0])
