"""The player: a model in this process, or one behind an OpenAI-compatible server."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainer.config import GRPOConfig
from trainer.play.retry import Act
from trainer.rollout.loop import local_generator, sampling
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.runtime.cpu_budget import limit_threads
from trainer.runtime.models import load_model_and_tokenizer

TEMPERATURE = 0.8  # of several attempts; docs/play.md has what their agreement is worth at it
RETRY_TEMPERATURE = 1.2  # of an action in place of one that failed before


@dataclass(frozen=True)
class Agent:
    """One player: what makes generators, with a `codec`, or a policy, which writes texts. It plays
    a single attempt greedily, several at `TEMPERATURE`."""

    config: GRPOConfig
    player: Any
    retry: Act | None = None  # of a policy, at `RETRY_TEMPERATURE`
    codec: ChatCodec | None = None
    tokenizer: Any = None
    compute: Callable[[], Any] = nullcontext  # context manager that sets the number format


def local_agent(config: GRPOConfig, samples: int = 1) -> Agent:
    limit_threads()
    model, tokenizer = load_model_and_tokenizer(config)
    model.eval()
    codec = codec_of(tokenizer, config.thinking)
    return Agent(
        config,
        player=partial(
            local_generator,
            model,
            codec,
            config.override(temperature=TEMPERATURE),
            greedy=samples == 1,
        ),
        codec=codec,
        tokenizer=tokenizer,
        compute=lambda: sampling(model, config, "playing"),
    )


def served_agent(config: GRPOConfig, base_url: str, samples: int = 1) -> Agent:
    from trainer.rollout.served import served_model  # needs the openai library

    temperature = 0.0 if samples == 1 else TEMPERATURE
    _, found = served_model(config, base_url, temperature=temperature)
    policy = found["policy"]
    return Agent(config, policy, partial(policy.act_one, temperature=RETRY_TEMPERATURE))
