"""The player: a model in this process, or one behind an OpenAI-compatible server."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import ApiName, GRPOConfig
from trainer.presets import TRAINED_MODEL
from trainer.rollout.loop import local_generator
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.run.folder import newest
from trainer.runtime.models import load_model_and_tokenizer, preset_of
from trainer.runtime.precision import autocast

RUNS = Path("runs")
RETRY_TEMPERATURE = 1.2  # least, of an action in place of one that failed before


@dataclass(frozen=True)
class Agent:
    """One player: a generator with a `codec`, or a policy, which writes texts.

    `name` and `why` are shown to the user. `config` holds prompt, budget and lengths. `retry` is
    the same player at a temperature: see `retry.py`.
    """

    name: str
    why: str
    config: GRPOConfig
    greedy: bool
    player: Any
    retry: Any
    codec: ChatCodec | None = None
    tokenizer: Any = None
    compute: Callable[[], Any] = nullcontext  # context manager that sets the number format


def choose_model(model: str | None) -> tuple[str, str]:
    """Return the model and why: the given one, the newest finished run's, or the shipped one."""
    if model is not None:
        return model, "given with --model or --adapter"
    run, unfinished = newest(RUNS)
    remark = f" ({unfinished})" if unfinished else ""
    if run is not None and (run.model / "config.json").is_file():
        shipped = f"the shipped one: --model {TRAINED_MODEL}"
        return str(run.model), f"of the newest finished run{remark}; {shipped}"
    without = f"no finished run is in {RUNS}/ ('make train' makes one)"
    return TRAINED_MODEL, f"the shipped trained model: {without}{remark}"


def local_agent(
    model: str | None, preset: str | None, settings: Mapping[str, Any], temperature: float = 0.0
) -> Agent:
    """Return a model of this machine. Raise `ModelLoadError` if it can't be loaded.

    `settings` are fields of `GRPOConfig`, which override the model's own; a `temperature` of 0 is
    greedy.
    """
    from transformers.utils import logging

    from trainer.runtime.cpu_budget import limit_threads

    logging.disable_progress_bar()
    limit_threads()
    name, why = choose_model(model)
    choice = preset_of(name, preset, settings.get("base_model", ""))
    own = {**choice.settings, "temperature": temperature or 1.0}
    config = GRPOConfig.preset(choice.preset, **{**own, **settings})
    loaded, tokenizer = load_model_and_tokenizer(config)
    loaded.eval()
    codec = codec_of(tokenizer, config.thinking)
    hotter = config.override(temperature=max(temperature, RETRY_TEMPERATURE))
    return Agent(
        name,
        f"{why}; {choice}",
        config,
        not temperature,
        player=local_generator(loaded, codec, config, greedy=not temperature),
        retry=local_generator(loaded, codec, hotter),
        codec=codec,
        tokenizer=tokenizer,
        compute=lambda: autocast(config),
    )


def api_agent(
    base_url: str,
    model: str,
    preset: str | None,
    settings: Mapping[str, Any],
    temperature: float = 0.0,
    api: ApiName = "chat",
    tokenizer: str | None = None,
) -> Agent:
    """Return a model of an OpenAI-compatible server; `ModelServerError` if it does not serve it.

    `settings` and `temperature` are those of `local_agent`.
    """
    from trainer.rollout.served import served_model

    choice = preset_of(model, preset, served=True)
    own = {**choice.settings, "temperature": temperature or 1.0}
    if api == "tools":
        own["system_prompt"] = "tools"
    config = GRPOConfig.preset(choice.preset, **{**own, **settings})
    served, hotter = (
        served_model(config, base_url, api, tokenizer, temperature=one)
        for one in (temperature, max(temperature, RETRY_TEMPERATURE))
    )
    return Agent(
        model,
        f"served by {served.server.base_url}; {choice}",
        config,
        not temperature,
        player=served.policy or served.generator,
        retry=hotter.policy or hotter.generator,
        codec=served.codec,
        tokenizer=served.tokenizer,
    )
