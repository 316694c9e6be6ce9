"""The player: a model in this process, or one behind an OpenAI-compatible server."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.console import counted, percent
from shared.errors import SQLEnvError
from shared.run_files import RunSummary
from trainer.config import ApiName, GRPOConfig
from trainer.errors import PlayError, RunError
from trainer.presets import TRAINED_MODEL, Choice
from trainer.rollout.generators.base import AnyGenerator, AnyPolicy
from trainer.rollout.loop import local_generator
from trainer.rollout.tokens import ChatCodec, codec_of
from trainer.run.folder import Run, newest, read_json
from trainer.runtime.models import load_model_and_tokenizer, preset_of
from trainer.runtime.precision import autocast

RUNS = Path("runs")


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
    """One player: `generator` with `codec` samples token ids, or `policy` writes texts.

    `name` and `why` are shown to the user. `config` holds prompt, budget and lengths.
    """

    name: str
    why: str
    config: GRPOConfig
    sampling: Sampling
    codec: ChatCodec | None = None
    tokenizer: Any = None
    generator: AnyGenerator | None = None
    policy: AnyPolicy | None = None
    compute: Callable[[], Any] = nullcontext  # context manager that sets the number format

    @property
    def window(self) -> int | None:
        """Context window of a local model in tokens; None for a server's."""
        return getattr(self.generator, "limit", None)


def choose_model(model: str | None) -> tuple[str, str]:
    """Return the model and why: the given one, the newest finished run's, or the shipped one."""
    if model is not None:
        return model, "given with --model"
    run, unfinished = newest(RUNS)
    remark = f" ({unfinished})" if unfinished else ""
    if run is not None and (run.model / "config.json").is_file():
        why = f"of the newest finished run{_reached(run)}{remark}; the shipped one:"
        return str(run.model), f"{why} --model {TRAINED_MODEL}"
    without = f"no finished run is in {RUNS}/ ('make train' makes one)"
    return TRAINED_MODEL, f"the shipped trained model: {without}{remark}"


def _reached(run: Run) -> str:
    """Return a run's steps and, if measured, its greedy success on its eval questions."""
    try:
        summary: RunSummary = read_json(run.summary)
    except RunError:  # damaged; the model may be whole
        return ""
    rate = summary.get("eval_success_after", {}).get("greedy", {}).get("overall")
    right = f", {percent(rate['rate'])} of {rate['n']} eval questions right" if rate else ""
    return f" ({counted(summary['train_steps'], 'step')}{right})"


@dataclass(frozen=True)
class Options:
    """What the user chose besides the model. What is None is the model's own.

    `settings` are further fields of `GRPOConfig`, which override the model's own too.
    """

    sampling: Sampling
    server_wait_s: float
    preset: str | None = None
    steps: int | None = None
    thinking: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def local_agent(model: str | None, options: Options) -> Agent:
    """Return a model of this machine. Raise `ModelLoadError` if it can't be loaded."""
    from transformers.utils import logging

    from trainer.runtime.cpu_budget import limit_threads

    logging.disable_progress_bar()
    limit_threads()
    name, why = choose_model(model)
    choice = preset_of(name, options.preset)
    config = _config(choice, options)
    loaded, tokenizer = load_model_and_tokenizer(config)
    loaded.eval()
    codec = codec_of(tokenizer, config.thinking)
    return Agent(
        name,
        f"{why}; {choice}",
        config,
        options.sampling,
        codec=codec,
        tokenizer=tokenizer,
        generator=local_generator(loaded, codec, config, greedy=options.sampling.greedy),
        compute=lambda: autocast(config),
    )


def api_agent(
    base_url: str, model: str, options: Options, api: ApiName, tokenizer: str | None
) -> Agent:
    """Return a model of an OpenAI-compatible server; `ModelServerError` if it does not serve it."""
    from trainer.rollout.served import served_model

    choice = preset_of(model, options.preset, served=True)
    config = _config(choice, options, **({"system_prompt": "tools"} if api == "tools" else {}))
    temperature = options.sampling.temperature
    served = served_model(config, base_url, api, tokenizer, temperature=temperature)
    return Agent(
        model,
        f"served by {served.server.base_url}; {choice}",
        config,
        options.sampling,
        codec=served.codec,
        tokenizer=served.tokenizer,
        generator=served.generator,
        policy=served.policy,
    )


def _config(choice: Choice, options: Options, **prompt: Any) -> GRPOConfig:
    settings = {
        **choice.settings,
        **prompt,
        "temperature": options.sampling.temperature or 1.0,
        "seed": options.sampling.seed,
        "server_wait_s": options.server_wait_s,
    }
    for name, value in (("step_budget", options.steps), ("thinking", options.thinking)):
        if value is not None:
            settings[name] = value
    try:
        return GRPOConfig.preset(choice.preset, **{**settings, **options.settings})
    except SQLEnvError as error:
        raise PlayError(f"invalid settings for this model: {error.message}") from error
