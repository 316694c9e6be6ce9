"""The player: a model in this process, or one behind an OpenAI-compatible server.

A model of a run plays with that run's settings: its prompt, lengths and step budget.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shared.errors import SQLEnvError
from trainer.config import OFFLINE_MODEL, PRESETS, GRPOConfig
from trainer.errors import PlayError, RunError
from trainer.rollout.generators.base import Generator, Policy
from trainer.rollout.loop import local_generator
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.run.folder import LATEST, read_json
from trainer.runtime.models import load_model_and_tokenizer
from trainer.runtime.precision import autocast

RUNS = Path("runs")
SMALL_WINDOW = 2048  # tokens: models of this project's size, which do best with a one-line prompt
MAX_CONTEXT_TOKENS = 8192  # of a larger window: a KV cache for all of Qwen3's would take gigabytes
API_NEW_TOKENS = 512


@dataclass(frozen=True)
class Sampling:
    """How the next action is sampled; a `temperature` of 0 is greedy."""

    temperature: float = 0.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def __str__(self) -> str:
        return "greedy" if self.greedy else f"temperature {self.temperature:g}, seed {self.seed}"


@dataclass(frozen=True)
class Agent:
    """One player: `make_generator` with `codec` samples token ids, or `policy` writes texts.

    `name` and `why` are shown to the user. `config` holds prompt, budget and lengths.
    """

    name: str
    why: str
    config: GRPOConfig
    sampling: Sampling
    codec: ChatCodec | None = None
    tokenizer: Any = None
    make_generator: Callable[[], Generator] | None = None
    policy: Policy | None = None
    compute: Callable[[], Any] = nullcontext  # context manager that sets the number format

    @property
    def window(self) -> int | None:
        """Context window of a local model in tokens; None for a server's."""
        return getattr(self.make_generator(), "limit", None) if self.make_generator else None


def choose_model(model: str | None) -> tuple[str, str]:
    """Return the model to load and why: the given one, the latest run's, or the shipped base."""
    if model is not None:
        return model, "given with --model"
    trained = RUNS / LATEST / "model"
    if (trained / "config.json").is_file():
        return str(trained), f"from run {trained.parent.resolve().name}, the latest"
    return OFFLINE_MODEL, f"the untrained base: there is no {trained} ('make train' makes one)"


def run_settings(model: str) -> dict[str, Any] | None:
    """Return the settings of the run whose model/ or checkpoints/checkpoint-N/ this is, or None."""
    for folder in Path(model).resolve().parents[:2]:
        try:
            settings = read_json(folder / "config.json")["config"]
        except (RunError, KeyError, TypeError):
            continue
        if isinstance(settings, dict):
            known = {field.name for field in fields(GRPOConfig)}
            return {name: value for name, value in settings.items() if name in known}
    return None


def local_agent(
    model: str | None, sampling: Sampling, steps: int | None, server_wait_s: float
) -> Agent:
    """Return a model of this machine. Raise `ModelLoadError` if it can't be loaded."""
    from transformers.utils import logging

    from trainer.runtime.cpu_budget import limit_threads

    logging.disable_progress_bar()
    limit_threads()
    name, why = choose_model(model)
    settings = run_settings(name)
    config = _config({**(settings or {}), "model_name": name}, sampling, steps, server_wait_s)
    loaded, tokenizer = load_model_and_tokenizer(config)
    loaded.eval()
    if settings is None:
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
        compute=lambda: autocast(config),
    )


@contextmanager
def api_agent(
    base_url: str, model: str, sampling: Sampling, steps: int | None, server_wait_s: float
) -> Iterator[Agent]:
    """Yield a model of an OpenAI-compatible server; `ModelServerError` if it does not serve it."""
    from trainer.rollout.generators.openai import OpenAIPolicy

    settings = {"max_new_tokens": API_NEW_TOKENS, "model_name": model}
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
    """Return the settings for a model of no known run, by its context window in tokens."""
    if window <= SMALL_WINDOW:
        return PRESETS["offline"]
    settings = {"max_new_tokens": 256, "max_context_tokens": min(window, MAX_CONTEXT_TOKENS)}
    return {**PRESETS["colab"], **settings}


def _config(
    settings: dict[str, Any], sampling: Sampling, steps: int | None, server_wait_s: float
) -> GRPOConfig:
    settings = settings | {
        "temperature": sampling.temperature or 1.0,
        "seed": sampling.seed,
        "server_wait_s": server_wait_s,
        # not the GPU of the machine that trained it
        "device": "cpu" if settings.get("device") == "cpu" else "auto",
    }
    if steps is not None:
        settings["step_budget"] = steps
    try:
        return GRPOConfig(**settings)
    except SQLEnvError as error:
        raise PlayError(f"invalid settings for this model: {error.message}") from error
