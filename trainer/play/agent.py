"""The player: a model in this process, or one behind an OpenAI-compatible server."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from trainer.config import ApiName, GRPOConfig
from trainer.rollout.loop import local_generator
from trainer.rollout.served import served_model
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import autocast

RETRY_TEMPERATURE = 1.2  # least, of an action in place of one that failed before


@dataclass(frozen=True)
class Agent:
    """One player: a generator with a `codec`, or a policy, which writes texts.

    `about` is shown to the user. `retry` is the same player at a temperature: see `retry.py`.
    """

    config: GRPOConfig
    greedy: bool
    about: str
    player: Any
    retry: Any
    codec: ChatCodec | None = None
    tokenizer: Any = None
    compute: Callable[[], Any] = nullcontext  # context manager that sets the number format


def local_agent(config: GRPOConfig, greedy: bool, about: str) -> Agent:
    """Return the model of `config` in this process, or raise `ModelLoadError`."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    limit_threads()
    model, tokenizer = load_model_and_tokenizer(config)
    model.eval()
    codec = codec_of(tokenizer, config.thinking)
    hotter = config.override(temperature=_retry_temperature(config))
    return Agent(
        config,
        greedy,
        about,
        player=local_generator(model, codec, config, greedy=greedy),
        retry=local_generator(model, codec, hotter),
        codec=codec,
        tokenizer=tokenizer,
        compute=lambda: autocast(config),
    )


def served_agent(
    config: GRPOConfig,
    greedy: bool,
    about: str,
    base_url: str,
    api: ApiName = "chat",
    tokenizer: str | None = None,
) -> Agent:
    """Return the model of `config` on an OpenAI-compatible server.

    Raise `ModelServerError` if it does not serve the model.
    """
    first, retry = (
        served_model(config, base_url, api, tokenizer, temperature=temperature)
        for temperature in (0.0 if greedy else config.temperature, _retry_temperature(config))
    )
    return Agent(
        config,
        greedy,
        f"served by {first.server.base_url}; {about}",
        player=first.policy or first.generator,
        retry=retry.policy or retry.generator,
        codec=first.codec,
        tokenizer=first.tokenizer,
    )


def _retry_temperature(config: GRPOConfig) -> float:
    return max(config.temperature, RETRY_TEMPERATURE)
