"""Who plays: a model in this process, or one behind an OpenAI-compatible server.

A model plays as it was trained where a run's folder says how: the prompt, the lengths and the step
budget of that run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from shared.errors import SQLEnvError
from trainer.config import OFFLINE_MODEL, PRESETS, GRPOConfig
from trainer.errors import PlayError, RunError
from trainer.rollout.generators.base import Generator, Policy
from trainer.rollout.loop import local_generator
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.run.folder import LATEST, read_json
from trainer.runtime.models import load_model_and_tokenizer

RUNS = Path("runs")
# tokens: models with no more are of this project's size, which one line of a prompt serves best
SMALL_WINDOW = 2048
MOST_CONTEXT_TOKENS = 8192  # of a larger window: a KV cache for all of Qwen3's would take gigabytes
API_STEPS, API_NEW_TOKENS = 15, 512


@dataclass(frozen=True)
class Sampling:
    """How the next action is drawn. `temperature` 0 is greedy."""

    temperature: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def __str__(self) -> str:
        return "greedy" if self.greedy else f"temperature {self.temperature:g}, seed {self.seed}"


@dataclass(frozen=True)
class Agent:
    """One player. Either `generator` makes what samples ids, with `codec` between them and text, or
    `policy` writes.

    `name` and `why` are for people. `config` holds prompt, budget and lengths; its servers are the
    session's to set.
    """

    name: str
    why: str
    config: GRPOConfig
    sampling: Sampling
    codec: ChatCodec | None = None
    tokenizer: Any = None
    make_generator: Callable[[], Generator] | None = None
    policy: Policy | None = None
    compute: Callable[[], Any] = nullcontext  # the context in which a model computes

    @property
    def window(self) -> int | None:
        """Tokens of a local model's context; a server's is not known."""
        return getattr(self.make_generator(), "limit", None) if self.make_generator else None


def choose_model(model: str | None) -> tuple[str, str]:
    """(the model to load, why it): the one that is named, the latest run's, or the shipped base."""
    if model is not None:
        return model, "as --model says"
    trained = RUNS / LATEST / "model"
    if (trained / "config.json").is_file():
        return str(trained), f"trained by {trained.parent.resolve().name}, the latest run"
    return (
        OFFLINE_MODEL,
        f"the untrained base: there is no {trained}, which 'make train' would leave",
    )


def run_settings(model: str) -> dict[str, Any] | None:
    """The settings of the run whose folder a model lies in (model/, checkpoints/checkpoint-N/);
    None: it is in none."""
    here = Path(model).resolve()
    for folder in here.parents[:2]:
        try:
            settings = read_json(folder / "config.json")["config"]
        except (RunError, KeyError, TypeError):
            continue
        if isinstance(settings, dict):
            known = {one.name for one in fields(GRPOConfig)}
            return {name: value for name, value in settings.items() if name in known}
    return None


def local_agent(
    model: str | None, sampling: Sampling, steps: int | None, server_wait_s: float
) -> Agent:
    """A model of this machine. `ModelLoadError` names what is missing."""
    from transformers.utils import logging

    from trainer.runtime.cpu_budget import limit_threads

    logging.disable_progress_bar()
    limit_threads()
    name, why = choose_model(model)
    found = run_settings(name)
    config = _config({**(found or {}), "model_name": name}, sampling, steps, server_wait_s)
    loaded, tokenizer = load_model_and_tokenizer(config)
    loaded.eval()
    if found is None:
        window = loaded.config.get_text_config().max_position_embeddings
        config = _config({**_preset(window), "model_name": name}, sampling, steps, server_wait_s)
    codec = codec_of(tokenizer)
    return Agent(
        name,
        why,
        config,
        sampling,
        codec=codec,
        tokenizer=tokenizer,
        make_generator=lambda: local_generator(loaded, codec, config, greedy=sampling.greedy),
        compute=lambda: _computing(config),
    )


@contextmanager
def api_agent(
    base_url: str, model: str, sampling: Sampling, steps: int | None, server_wait_s: float
) -> Iterator[Agent]:
    """A model behind an OpenAI-compatible server, which is asked for it first. `ModelServerError`
    says what failed."""
    from trainer.rollout.generators.openai import OpenAIPolicy

    settings = {"max_new_tokens": API_NEW_TOKENS, "step_budget": API_STEPS, "model_name": model}
    config = _config(settings, sampling, steps, server_wait_s)
    with OpenAIPolicy(
        model,
        base_url,
        system_prompt=config.system_prompt,
        temperature=sampling.temperature,
        max_tokens=config.max_new_tokens,
    ) as policy:
        policy.check()
        yield Agent(model, f"served by {policy.base_url}", config, sampling, policy=policy)


def _preset(window: int) -> dict[str, Any]:
    """The settings for a model of no known run, by its context window in tokens."""
    if window <= SMALL_WINDOW:
        return PRESETS["offline"]
    settings = {"max_new_tokens": 256, "max_context_tokens": min(window, MOST_CONTEXT_TOKENS)}
    return {**PRESETS["colab"], **settings}


def _config(
    settings: dict[str, Any], sampling: Sampling, steps: int | None, server_wait_s: float
) -> GRPOConfig:
    given = {
        "temperature": sampling.temperature or 1.0,
        "seed": sampling.seed,
        "server_wait_s": server_wait_s,
    }
    budget = {} if steps is None else {"step_budget": steps}
    device = "cpu" if settings.get("device") == "cpu" else "auto"  # not the GPU of another machine
    try:
        return GRPOConfig(**{**settings, **given, **budget, "device": device})
    except SQLEnvError as error:
        raise PlayError(f"the settings to play by don't work: {error.message}") from error


@contextmanager
def _computing(config: GRPOConfig) -> Iterator[None]:
    """The number format that the model computes in."""
    import torch

    from trainer.runtime.precision import precision

    device, plan = precision(config.device, config.dtype)
    if plan.compute is torch.float32:
        yield
        return
    with cast(Any, torch.autocast(torch.device(device).type, dtype=plan.compute)):
        yield
