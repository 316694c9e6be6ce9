"""Play episodes: all of a generation batch at once, over HTTP, token-exact.

sample a turn -> parse -> step -> observation -> bridge -> repeat
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from shared.client import ClientLimits, SQLEnvClient
from trainer.config.settings import GRPOConfig
from trainer.errors import RolloutError
from trainer.rollout.chat_codec import ChatCodec, codec_of
from trainer.rollout.dataset import Prompt, prompt_of
from trainer.rollout.episode import EpisodeObserver, start_episodes
from trainer.rollout.generators.base import AnyPolicy, Generator
from trainer.rollout.generators.policies import RandomPolicy, ScriptedPolicy
from trainer.rollout.row import RolloutRow
from trainer.rollout.row import RolloutStats as RolloutStats
from trainer.rollout.turns import EpisodeBatch
from trainer.rollout.turns import EpisodeClient as EpisodeClient
from trainer.runtime.out_of_memory import reporting_out_of_memory

if TYPE_CHECKING:
    from trainer.rollout.generators.local import LocalGenerator

SCRIPTED_BATCH = 512  # demonstrations played at once
# share of the turns under way that must end before their steps are sent: docs/results.md
ENDED_SHARE = 0.5
LEAST_ATTEMPTS = 6  # even if server_wait_s is 0: about 5 s, for a connection that breaks


def play_episodes(
    prompts: Sequence[Prompt],
    model: Any,
    tokenizer: Any,
    config: GRPOConfig,
    *,
    client: EpisodeClient | None = None,
    policy: AnyPolicy | None = None,
    greedy: bool = False,
    seed: int | None = None,
    stats: RolloutStats | None = None,
    generator: Generator | None = None,
    check_lost: bool = True,
    repeats: Sequence[int] | None = None,
    observer: EpisodeObserver | None = None,
) -> list[RolloutRow]:
    """Play one episode per prompt (`load_question_prompts`), all at once; return their rows.

    `model` samples, on its device and in eval mode, unless a `generator` or a `policy` plays; with
    a policy, `tokenizer` may be None (the rows then hold no ids). `repeats` are the numbers of the
    episodes among those of their questions, by default as in `prompts`. Raises `RolloutError` if
    infrastructure lost more than `config.max_lost_fraction` of them, unless `check_lost` is False.
    """
    if not prompts:
        return []
    if policy is None and (tokenizer is None or (model is None and generator is None)):
        raise ValueError("play_episodes needs a model and a tokenizer, or a policy")
    stats = RolloutStats() if stats is None else stats
    seed = config.seed if seed is None else seed
    codec = None if tokenizer is None else codec_of(tokenizer, config.thinking)
    with open_client(config) if client is None else nullcontext(client) as client:
        start, rebuilds = time.perf_counter(), client.stats.rebuilds
        episodes = start_episodes(prompts, seed, repeats)
        batch = EpisodeBatch(episodes, codec, config, client, stats, observer)
        try:
            if policy is not None:
                batch.reset()
                batch.play_policy(policy)
            else:
                assert codec is not None
                if generator is None:
                    seen = observer.on_tokens if observer else None
                    generator = local_generator(model, codec, config, greedy=greedy, on_tokens=seen)
                batch.reset()
                batch.play_generator(generator, codec)
            rows = batch.rows()
        finally:
            stats.rebuilds += client.stats.rebuilds - rebuilds
        stats.rollout_s += time.perf_counter() - start
    if check_lost:
        check_lost_rows(rows, config)
    return rows


def play_scripted(
    scripts: Mapping[str, Sequence[str]],
    tokenizer: Any,
    config: GRPOConfig,
    client: EpisodeClient | None = None,
) -> list[RolloutRow]:
    """Play `scripts` (question id -> action texts) and return their rows in order. env_mask is 1
    for the script's ids; logprobs are 0.0, since nothing sampled them."""
    policy, rows = ScriptedPolicy(scripts), list[RolloutRow]()
    prompts = [prompt_of(question_id, "", config) for question_id in scripts]
    with open_client(config) if client is None else nullcontext(client) as client:
        for first in range(0, len(prompts), SCRIPTED_BATCH):
            part = prompts[first : first + SCRIPTED_BATCH]
            rows += play_episodes(part, None, tokenizer, config, client=client, policy=policy)
    return rows


def sample_random_baseline(
    prompts: Sequence[Prompt], config: GRPOConfig, client: EpisodeClient | None = None
) -> list[RolloutRow]:
    return play_episodes(prompts, None, None, config, client=client, policy=RandomPolicy())


@contextmanager
def open_client(config: GRPOConfig, digest: str | None = None) -> Iterator[EpisodeClient]:
    """Open a client of the config's servers, and wait `config.server_wait_s` for lost ones. With
    the run's `digest`, a server of another one rebuilds no episode: `DigestMismatch`."""
    limits = ClientLimits(max_attempts=LEAST_ATTEMPTS, patience_s=config.server_wait_s)
    with SQLEnvClient(config.server_urls, limits, digest=digest).sync() as client:
        yield client


@contextmanager
def sampling(
    model: Any,
    config: GRPOConfig,
    doing: str,
    number_format: AbstractContextManager[Any] | None = None,
) -> Iterator[None]:
    """Put the model in eval mode and a number format, by default that of `config`, for the block,
    which must compute no gradients and change no weights, of which a CPU has packed copies."""
    # these import torch, which policies don't need
    from trainer.runtime.packed_weights import packed_weights
    from trainer.runtime.precision import autocast

    was_training = model.training
    model.eval()
    try:
        with (
            reporting_out_of_memory(config, doing),
            number_format or autocast(config),
            packed_weights(model),
        ):
            yield
    finally:
        model.train(was_training)


def action_end(codec: ChatCodec, config: GRPOConfig) -> Callable[[Sequence[int]], bool] | None:
    if not config.one_action_per_turn:
        return None
    return partial(codec.ends_action, most_prose=config.max_prose_tokens)


def local_generator(
    model: Any,
    codec: ChatCodec,
    config: GRPOConfig,
    *,
    greedy: bool = False,
    on_tokens: Callable[[int, int, int], None] | None = None,
) -> "LocalGenerator":
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
        ends_action=action_end(codec, config),
        ended_share=ENDED_SHARE,
        on_tokens=on_tokens,
    )


def check_lost_rows(rows: Sequence[RolloutRow], config: GRPOConfig) -> None:
    servers = ", ".join(config.server_urls)
    remedy = f"check the servers at {servers}, then resume from the last checkpoint"
    raise_if_lost(rows, len(rows), config.max_lost_fraction, remedy)


def raise_if_lost(
    rows: Sequence[RolloutRow], episodes: int, max_fraction: float, remedy: str
) -> None:
    """Raise `RolloutError` if infrastructure lost more than `max_fraction` of `episodes`, of which
    `rows` are those played so far."""
    lost = [row.lost for row in rows if row.lost is not None]
    if len(lost) > max_fraction * episodes:
        raise RolloutError(
            f"{len(lost)} of {episodes} episodes were lost to infrastructure, more than "
            f"{100 * max_fraction:.0f} %: {remedy}. The first error: {lost[0]}",
            lost=len(lost),
            episodes=episodes,
        )
