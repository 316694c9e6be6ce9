"""The player: a model in this process, or one behind an OpenAI-compatible server."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainer.config.settings import GRPOConfig
from trainer.play.played import PlayedAttempt
from trainer.play.retry import RETRY_TEMPERATURE, RetryingGenerator, RetryingPolicy
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.loop import local_generator, sampling
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.models import load_model_and_tokenizer

TEMPERATURE = 0.8  # of several attempts; docs/play.md has what their agreement is worth at it


@dataclass(frozen=True)
class Agent:
    """Plays a single attempt greedily, several at `TEMPERATURE`. `player` returns what
    `play_episodes` takes to play attempts, from these and the observer's `on_tokens`."""

    config: GRPOConfig
    player: Callable[[Sequence[PlayedAttempt], Callable[[int, int, int], None]], dict[str, Any]]
    compute: Callable[[], AbstractContextManager[None]] = nullcontext  # sets the number format


def local_agent(config: GRPOConfig, samples: int = 1) -> Agent:
    limit_threads()
    model, tokenizer = load_model_and_tokenizer(config)
    model.eval()
    codec, sampled = codec_of(tokenizer, config.thinking), config.override(temperature=TEMPERATURE)
    make = partial(local_generator, model, codec, sampled, greedy=samples == 1)
    return Agent(
        config,
        lambda attempts, on_tokens: {
            "generator": RetryingGenerator(make(on_tokens=on_tokens), codec, attempts),
            "tokenizer": tokenizer,
        },
        compute=lambda: sampling(model, config, "playing"),
    )


def served_agent(config: GRPOConfig, base_url: str, samples: int = 1) -> Agent:
    from trainer.rollout.served import served_model  # needs the openai library

    temperature = 0.0 if samples == 1 else TEMPERATURE
    _, found = served_model(config, base_url, temperature=temperature)
    policy = found["policy"]
    retry = partial(policy.act_one, temperature=RETRY_TEMPERATURE)
    return Agent(
        config,
        lambda attempts, _: {"policy": RetryingPolicy(policy, retry, attempts), "tokenizer": None},
    )
