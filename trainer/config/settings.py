"""`GRPOConfig`: every setting of a training run, by name and from text."""

import difflib
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, create_model

from shared.errors import SQLEnvError
from shared.models import (
    DEFAULT_STANDARD,
    DEFAULT_STEP_BUDGET,
    MAX_STEP_BUDGET,
    Difficulty,
    Explanation,
    StandardName,
)
from shared.seeds import DEFAULT_SEED, MAX_SEED
from trainer.config.presets import PRESETS

DType = Literal["auto", "float32", "bfloat16", "float16"]
PROMPTS = ("full", "short")  # the names of system prompts; others are given as a file
PolicyName = Literal["random", "oracle", "model", "openai"]  # what `evaluate` measures
LabelsName = Literal["gold", "rewards", "agreement"]  # what `improve` takes as right
# what stdout of `play` shows: every step and the answer, or the answers alone
FormatName = Literal["text", "table", "csv", "json"]
ApiName = Literal["chat", "completions"]  # what a model server exchanges: texts or ids

DEFAULT_SERVER_URL = "http://127.0.0.1:8000"
# of the layers of the reward: the weighted sum is the server's reward ledger total
REWARD_WEIGHTS = {"correctness": 1.0, "progress": 0.15, "operational": 1.0}


def _split(value: Any) -> Any:
    return list(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _prompt(value: Any) -> Any:
    """Return the name of a system prompt, or the text of one; that of a file if it is a `Path`. A
    text is never taken for a path: a model's folder may hold one."""
    wanted = f"it should be {', '.join(PROMPTS)} or a file with a prompt of several words in UTF-8"
    try:
        text = value.read_text(encoding="utf-8").strip() if isinstance(value, Path) else value
    except (OSError, ValueError) as error:
        raise ValueError(wanted) from error
    if isinstance(text, str) and text not in PROMPTS and len(text.split()) < 2:
        raise ValueError(wanted)
    return text


_Count = Annotated[int, Field(ge=1)]
_Natural = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Path = BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
_Text = Annotated[str, Field(min_length=1), _Path]
_Split = BeforeValidator(_split)
_URL = Annotated[str, Field(pattern="^https?://")]
_OptionalURL = Annotated[str, Field(pattern="^(https?://.*)?$")]
_Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]


class ConfigError(SQLEnvError, ValueError, code="config"):
    """A setting cannot work."""


@dataclass(kw_only=True)
class GRPOConfig:
    """Settings of one run; docs/settings.md describes each. Text is parsed by a field's type, as on
    a command line; lists are comma-separated. Bad values raise `ConfigError`, which names the field
    and the remedy."""

    model_name: _Text = "Qwen/Qwen3-1.7B"  # a name on the hub, or a model's or adapter's directory
    max_new_tokens: _Count = 256  # sampled tokens per turn
    num_train_epochs: _Count = 1
    per_device_train_batch_size: _Count = 2  # rollouts
    gradient_accumulation_steps: _Count = 4  # micro-batches per step, shared by all processes
    learning_rate: _Positive = 5e-6
    num_generations: Annotated[_Count, Field(ge=2)] = 4  # rollouts per question, which are a group
    questions_path: _Text = "data/questions/questions_train.json"
    db_dir: _Text = "data/databases"
    step_budget: Annotated[_Count, Field(le=MAX_STEP_BUDGET)] = DEFAULT_STEP_BUDGET
    difficulty_filter: Annotated[list[Difficulty], Field(min_length=1), _Split] = field(
        default_factory=lambda: ["easy", "medium"]
    )
    seed: Annotated[_Natural, Field(le=MAX_SEED)] = DEFAULT_SEED
    output_dir: _Text = "runs/grpo"
    logging_steps: _Count = 10
    # The fields above are the specification's, with its defaults.
    base_model: str = ""  # of the adapter that model_name is; empty: the one that it names
    trust_remote_code: bool = False  # run the Python code that a model's folder brings
    server_urls: Annotated[list[_URL], Field(min_length=1), _Split] = field(
        default_factory=lambda: [DEFAULT_SERVER_URL]
    )
    standard: StandardName = DEFAULT_STANDARD
    server_wait_s: _NotNegative = 600.0  # wait for a lost server before its episodes count as lost
    max_lost_fraction: Annotated[_NotNegative, Field(lt=1)] = 0.05
    # the name of one of `PROMPTS`, or the text of a file
    system_prompt: Annotated[str, Field(min_length=1), BeforeValidator(_prompt)] = "full"
    explain: Annotated[list[Explanation], _Split] = field(default_factory=lambda: ["errors"])
    one_action_per_turn: bool = True  # otherwise a turn ends only at the model's end of turn
    max_prose_tokens: _Natural = 96  # 0: any number
    thinking: bool = False
    temperature: _Positive = 1.0
    max_context_tokens: _Count = 4096  # prompt and all turns; limited by the model's window, too
    dtype: DType = "auto"
    device: _Device = "auto"
    max_steps: int = -1  # training steps; -1: set by num_train_epochs
    lr_scheduler: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    warmup_steps: _Natural = 0
    # by default the reward is the total of the server's ledger
    reward_weights: Annotated[list[_NotNegative], Field(min_length=3, max_length=3), _Split] = (
        field(default_factory=lambda: [*REWARD_WEIGHTS.values()])
    )
    beta: _NotNegative = 0.0  # weight of the KL term; 0 needs no reference model
    updates_per_batch: _Count = 1
    scale_rewards: Literal["group", "batch", "none"] = "group"
    skip_one_verdict_groups: bool = False
    gradient_checkpointing: bool = False
    generation_url: _OptionalURL = ""  # empty: this process samples
    lora_rank: _Natural = 0  # 0: train all weights
    save_steps: _Natural = 0  # training steps between checkpoints; 0: only at the end
    report_to: Annotated[list[str], _Split] = field(default_factory=list)
    allow_dev_questions: bool = False

    def __post_init__(self) -> None:
        try:
            checked = _MODEL.model_validate(vars(self))
        except ValidationError as error:
            raise _config_error(error) from error
        vars(self).update(dict(checked))
        groups, left_over = divmod(self.rollouts_per_step, self.num_generations)
        _need(
            groups > 0 and left_over == 0,
            f"num_generations ({self.num_generations}) does not divide per_device_train_batch_size "
            f"x gradient_accumulation_steps ({self.rollouts_per_step}): change one of the three, "
            "so that a batch holds whole groups",
        )
        self.accumulation_steps(1)
        _need(
            any(self.reward_weights),
            "reward_weights are all 0: give one of correctness, progress and operational another "
            "weight",
        )
        _need(
            self.max_context_tokens > self.max_new_tokens,
            f"max_context_tokens ({self.max_context_tokens}) is not above max_new_tokens "
            f"({self.max_new_tokens}): leave room for the prompt",
        )
        steps = self.max_steps
        _need(steps == -1 or steps >= 1, f"max_steps is {steps}: use -1, or 1 or more")

    @property
    def rollouts_per_step(self) -> int:
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    def accumulation_steps(self, processes: int) -> int:
        """Return the micro-batches per step of one of `processes`; `ConfigError` if they differ."""
        steps = self.gradient_accumulation_steps
        _need(
            steps % processes == 0,
            f"gradient_accumulation_steps ({steps}) can't be shared by {processes} processes: use "
            f"a multiple of {processes}; per_device_train_batch_size times it are the rollouts per "
            f"step, now {self.rollouts_per_step}",
        )
        _need(
            (steps // processes) % self.updates_per_batch == 0,
            f"updates_per_batch ({self.updates_per_batch}) does not divide the micro-batches per "
            f"step{' of a process' * (processes > 1)} ({steps // processes}): change it, or "
            "gradient_accumulation_steps",
        )
        return steps // processes

    @property
    def data_dir(self) -> Path:
        """The data directory that the environment server must serve (`shared.dataset`)."""
        return Path(self.db_dir).parent

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Return the settings of a preset, with `overrides` as of `override`."""
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; the presets are {', '.join(PRESETS)}")
        return cls().override(**{**PRESETS[name], **overrides})

    def override(self, **overrides: Any) -> Self:
        values = dict(overrides)
        if (data_dir := values.pop("data_dir", None)) is not None:
            _need(bool(str(data_dir).strip()), "data_dir is empty: name a directory")
            questions = Path(data_dir) / "questions" / "questions_train.json"
            values = {"questions_path": questions, "db_dir": Path(data_dir) / "databases", **values}
        for name in values:
            if name not in _HINTS:
                close = difflib.get_close_matches(name, _HINTS, 1)
                settings = f"the settings are {', '.join(_HINTS)}"
                hint = f"did you mean {close[0]}?" if close else settings
                raise ConfigError(f"no setting {name!r}; {hint}")
        return replace(self, **values)


_HINTS = get_type_hints(GRPOConfig, include_extras=True)
_TYPES: Any = {name: (hint, ...) for name, hint in _HINTS.items()}
_MODEL = create_model(
    "GRPOConfig",
    __config__=ConfigDict(allow_inf_nan=False, str_strip_whitespace=True, protected_namespaces=()),
    **_TYPES,
)


def _need(ok: bool, problem: str) -> None:
    if not ok:
        raise ConfigError(problem)


def _config_error(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    rule = re.sub("^(Value error, |(Input|String|List) (?=should))", "", first["msg"])
    rule = f"it {rule}" if rule.startswith("should") else rule
    given = str(first["input"]) if isinstance(first["input"], Path) else first["input"]
    return ConfigError(f"{name} is {given!r}: {rule}")
