"""`GRPOConfig`: every setting of a training run, its presets, and its conversion to trl's own.

Fields above the line in the class are the specification's, with its defaults; the rest belong to
this trainer. A field can be set by name from text (`GRPOConfig.preset("offline", seed="2",
difficulty_filter="easy,medium")`), so a command line and a notebook share one path.
"""

import difflib
import math
import numbers
import os
import re
import types
import typing
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

from shared.models import MAX_STEP_BUDGET, Difficulty
from trainer.errors import ConfigError

DType = Literal["auto", "float32", "bfloat16", "float16"]
PromptKind = Literal["full", "short"]
LiveView = Literal["auto", "notebook", "terminal", "files", "off"]

OFFLINE_MODEL = "data/models/sqlenv-tiny"
DEFAULT_SERVER_URL = "http://127.0.0.1:8000"
# correctness, progress, operational: the weighted sum is the server's reward ledger total
REWARD_WEIGHTS = (1.0, 0.15, 1.0)


@dataclass(kw_only=True)
class GRPOConfig:
    """Settings of one run. Bad values raise `ConfigError`, which names the field and the remedy."""

    model_name: str = "Qwen/Qwen3-1.7B"  # a Hugging Face name or a directory
    max_new_tokens: int = 256  # sampled tokens per turn
    num_train_epochs: int = 1
    per_device_train_batch_size: int = 2  # rollouts
    gradient_accumulation_steps: int = 4  # micro-batches of a step; several processes share them
    learning_rate: float = 5e-6
    num_generations: int = 4  # rollouts of one question, which make a group
    questions_path: str = "data/questions/questions_train.json"
    db_dir: str = "data/databases"
    step_budget: int = 10
    difficulty_filter: list[Difficulty] = field(default_factory=lambda: ["easy", "medium"])
    seed: int = 42
    output_dir: str = "runs/grpo"
    logging_steps: int = 10
    # ---------------------------------------------------------------------------------------------------------------
    server_urls: list[str] = field(default_factory=lambda: [DEFAULT_SERVER_URL])
    # how long a lost server is awaited before its episodes count as lost
    server_wait_s: float = 600.0
    # of a generation batch or an evaluation; above it the run stops
    max_lost_fraction: float = 0.05
    system_prompt: PromptKind = "full"
    temperature: float = 1.0
    max_context_tokens: int = 4096  # prompt and all turns; the model's own window bounds it too
    # auto: bfloat16 where the GPU computes it natively, else float32 (float16 autocast on CUDA)
    dtype: DType = "auto"
    device: str = "auto"  # auto: cuda where there is one, else cpu
    max_steps: int = -1  # optimiser steps; -1: as num_train_epochs says
    lr_scheduler: Literal["constant_with_warmup", "linear", "cosine"] = "constant_with_warmup"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    beta: float = 0.0  # weight of the KL term; 0 needs no reference model
    loss_type: Literal["dapo", "grpo", "dr_grpo", "bnpo"] = "dapo"
    scale_rewards: Literal["group", "batch", "none"] = "group"
    gradient_checkpointing: bool = False  # less memory in updates, more time
    # of LoRA adapters on every linear layer, which alone are trained; 0: all weights are
    lora_rank: int = 0
    lora_alpha: float = 32.0  # adapters count lora_alpha / lora_rank
    save_steps: int = 0  # optimiser steps between checkpoints; 0: none on the way
    # trackers of transformers, such as tensorboard; none by default
    report_to: list[str] = field(default_factory=list)
    # train on questions of a published development split (shared.dataset)
    allow_dev_questions: bool = False
    # auto: notebook or terminal where training runs in one, else PNGs in the run's folder
    live_view: LiveView = "auto"
    # steps between two reward plots; these three are shortened in runs below 500 steps
    live_reward_every: int = 10
    live_trace_every: int = 50  # steps between two episode traces; 0: none
    live_success_every: int = 100  # steps between two measurements on train and eval; 0: none
    live_episodes: int = 3  # of train, and of eval, in such a measurement

    def __post_init__(self) -> None:
        for name, kind in _HINTS.items():
            setattr(self, name, _typed(name, getattr(self, name), kind))
        self._check()

    def _check(self) -> None:
        for name in ("model_name", "questions_path", "db_dir", "output_dir"):
            _need(bool(getattr(self, name)), name, "is empty", "name a path")
        for name in (
            "max_new_tokens",
            "num_train_epochs",
            "per_device_train_batch_size",
            "gradient_accumulation_steps",
            "logging_steps",
            "live_episodes",
        ):
            _need(getattr(self, name) >= 1, name, f"is {getattr(self, name)}", "use 1 or more")
        for name in ("learning_rate", "temperature", "max_grad_norm", "lora_alpha"):
            value = getattr(self, name)
            _need(value > 0, name, f"is {value}", "use a number above 0")
        live = ("live_reward_every", "live_trace_every", "live_success_every")
        for name in (
            "warmup_steps",
            "save_steps",
            "weight_decay",
            "beta",
            "seed",
            "server_wait_s",
            "lora_rank",
            *live,
        ):
            _need(getattr(self, name) >= 0, name, f"is {getattr(self, name)}", "use 0 or more")
        _need(
            self.seed < 2**32,
            "seed",
            f"is {self.seed}",
            "use a number below 2^32, as numpy's generator takes",
        )
        _need(
            re.fullmatch(r"auto|cpu|cuda(:\d+)?", self.device) is not None,
            "device",
            f"is {self.device!r}",
            "use auto, cpu, cuda or cuda:N",
        )
        _need(
            0 <= self.max_lost_fraction < 1,
            "max_lost_fraction",
            f"is {self.max_lost_fraction}",
            "use 0 to below 1",
        )
        _need(
            self.num_generations >= 2,
            "num_generations",
            f"is {self.num_generations}",
            "a group needs 2 rollouts or more to compare",
        )
        _need(
            self.rollouts_per_step % self.num_generations == 0,
            "num_generations",
            f"({self.num_generations}) does not divide per_device_train_batch_size x gradient_accumulation_steps "
            f"({self.rollouts_per_step})",
            "change one of the three, so that a batch holds whole groups",
        )
        _need(
            1 <= self.step_budget <= MAX_STEP_BUDGET,
            "step_budget",
            f"is {self.step_budget}",
            f"use 1 to {MAX_STEP_BUDGET}",
        )
        _need(
            self.max_context_tokens > self.max_new_tokens,
            "max_context_tokens",
            f"({self.max_context_tokens}) is not above max_new_tokens ({self.max_new_tokens})",
            "leave room for the prompt",
        )
        _need(
            self.max_steps == -1 or self.max_steps >= 1,
            "max_steps",
            f"is {self.max_steps}",
            "use -1, or 1 or more",
        )
        _need(
            len(self.report_to) < 2 or not {"none", "all"} & set(self.report_to),
            "report_to",
            f"is {', '.join(self.report_to)}",
            "use none or all alone, or name the trackers",
        )
        _need(
            bool(self.difficulty_filter),
            "difficulty_filter",
            "is empty",
            f"use some of {_listed(Difficulty)}",
        )
        for difficulty in self.difficulty_filter:
            _need(
                difficulty in get_args(Difficulty),
                "difficulty_filter",
                f"holds {difficulty!r}",
                f"use some of {_listed(Difficulty)}",
            )
        _need(
            bool(self.server_urls),
            "server_urls",
            "is empty",
            f"name a server, for example {DEFAULT_SERVER_URL}",
        )
        for url in self.server_urls:
            _need(
                url.startswith(("http://", "https://")),
                "server_urls",
                f"holds {url!r}",
                f"write a whole URL, for example {DEFAULT_SERVER_URL}",
            )
        for name, kind in _HINTS.items():
            if typing.get_origin(kind) is Literal:
                value = getattr(self, name)
                _need(value in get_args(kind), name, f"is {value!r}", f"use one of {_listed(kind)}")

    @property
    def rollouts_per_step(self) -> int:
        """Rollouts of one optimiser step, one generation batch, however many processes share them."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    def accumulation_steps(self, processes: int) -> int:
        """Micro-batches of one process, where `processes` share a step's. `ConfigError` where they
        don't divide."""
        steps = self.gradient_accumulation_steps
        _need(
            steps % processes == 0,
            "gradient_accumulation_steps",
            f"({steps}) can't be shared by {processes} processes",
            f"use a multiple of {processes}, and a smaller per_device_train_batch_size to keep "
            f"{self.rollouts_per_step} rollouts a step",
        )
        return steps // processes

    @property
    def data_dir(self) -> Path:
        """The data directory that the env server must serve (`shared.dataset`)."""
        return Path(self.db_dir).parent

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """A named set of values, with `overrides` by field name over it; `data_dir` sets both data
        paths.

        `offline` is the committed tiny model on a CPU; `colab` is Qwen3-0.6B on one 16 GB GPU.
        """
        if name not in PRESETS:
            raise ConfigError(f"no preset {name!r}; the presets are {', '.join(PRESETS)}")
        return cls().override(**{**PRESETS[name], **overrides})

    def override(self, **overrides: Any) -> Self:
        """A copy with fields set by name. Text is parsed by the field's type; lists are
        comma-separated."""
        values = dict(overrides)
        if (data_dir := values.pop("data_dir", None)) is not None:
            _need(bool(str(data_dir).strip()), "data_dir", "is empty", "name a directory")
            values.setdefault(
                "questions_path", str(Path(data_dir) / "questions" / "questions_train.json")
            )
            values.setdefault("db_dir", str(Path(data_dir) / "databases"))
        for name, value in values.items():
            if name not in _HINTS:
                near = difflib.get_close_matches(name, _HINTS, 1)
                hint = (
                    f"did you mean {near[0]}?" if near else f"the settings are {', '.join(_HINTS)}"
                )
                raise ConfigError(f"no setting {name!r}; {hint}")
            if isinstance(value, str):
                values[name] = _parse(name, value, _HINTS[name])
        return replace(self, **values)

    def to_trl(self, processes: int = 1, **overrides: Any) -> Any:
        """The `trl.GRPOConfig` of these settings for one of `processes`; `overrides` are its own
        fields.

        One generation batch is one optimiser step, so every checkpoint falls on a whole generation
        window. TRL's bf16 and gradient_checkpointing, which default to True, follow dtype and
        device here.
        """
        import trl

        from trainer.runtime.precision import precision

        device, plan = precision(self.device, self.dtype)
        values: dict[str, Any] = {
            "output_dir": self.output_dir,
            "num_train_epochs": self.num_train_epochs,
            "max_steps": self.max_steps,
            "per_device_train_batch_size": self.per_device_train_batch_size,
            "gradient_accumulation_steps": self.accumulation_steps(processes),
            "ddp_find_unused_parameters": False,  # every parameter of a causal LM takes part
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": self.lr_scheduler,
            "warmup_steps": self.warmup_steps,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_grad_norm,
            "num_generations": self.num_generations,
            "temperature": self.temperature,
            # rows are ours, TRL does not cut them
            "max_completion_length": self.max_context_tokens,
            "beta": self.beta,
            "loss_type": self.loss_type,
            "scale_rewards": self.scale_rewards,
            "reward_weights": list(REWARD_WEIGHTS),
            "seed": self.seed,
            "data_seed": self.seed,
            "logging_steps": self.logging_steps,
            "save_strategy": "steps" if self.save_steps else "no",
            "save_steps": self.save_steps or 500,
            "bf16": plan.trl_bf16,
            "fp16": plan.trl_fp16,
            "use_cpu": device == "cpu",
            "dataloader_pin_memory": device != "cpu",
            "report_to": self.report_to or "none",
        }
        known = {one.name for one in fields(trl.GRPOConfig)}
        # transformers renames the switch, and warns of the old name
        name = (
            "activation_checkpointing"
            if "activation_checkpointing" in known
            else "gradient_checkpointing"
        )
        values[name] = self.gradient_checkpointing
        return trl.GRPOConfig(**{**values, **overrides})


PRESETS: dict[str, dict[str, Any]] = {
    "offline": {
        "model_name": OFFLINE_MODEL,
        "device": "cpu",
        "dtype": "float32",
        "system_prompt": "short",
        "max_new_tokens": 64,
        "max_context_tokens": 1024,
        "num_generations": 8,
        # 8 questions x 8 generations in eight micro-batches: see trainer/grpo/length_sorting.py
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 8,
        "learning_rate": 3e-4,
        # by group, a group without a right answer learns from its step costs alone, blown up to
        # unit variance: success fell from 0.15 to 0.03 in 40 steps, as answering at once became the
        # cheapest thing to do
        "scale_rewards": "batch",
        "warmup_steps": 5,
        "max_steps": 70,
        "logging_steps": 1,
        "save_steps": 20,
    },
    # On a 16 GB T4: weights, gradients and Adam in float32 take 9.5 GB, a full KV cache (8 rows of
    # 2,048 tokens, 114 kB each) 1.9 GB, and a micro-batch of two rows with gradient checkpointing
    # under 2 GB (reckoned, not measured).
    "colab": {
        "model_name": "Qwen/Qwen3-0.6B",
        "num_generations": 2,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "max_new_tokens": 128,
        "max_context_tokens": 2048,
        "gradient_checkpointing": True,
        "logging_steps": 1,
        "save_steps": 50,
    },
}

_HINTS: dict[str, Any] = typing.get_type_hints(GRPOConfig)
assert set(_HINTS) == {one.name for one in fields(GRPOConfig)}
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _need(ok: bool, name: str, problem: str, remedy: str) -> None:
    if not ok:
        raise ConfigError(f"{name} {problem}: {remedy}", field=name)


def _listed(kind: Any) -> str:
    return ", ".join(map(str, get_args(kind)))


def _typed(name: str, value: Any, kind: Any) -> Any:
    """`value` as the field's type, or `ConfigError`. Paths become text, text a list, a whole number
    a float."""
    origin = typing.get_origin(kind)
    if origin is list:
        items = _parse(name, value, kind) if isinstance(value, str) else value
        ok = isinstance(items, list | tuple) and all(isinstance(item, str) for item in items)
        _need(ok, name, f"is {value!r}", "use a list of texts")
        return list(items)
    if origin is Literal:
        return value
    if kind is str:
        _need(isinstance(value, str | os.PathLike), name, f"is {value!r}", "use text")
        return str(value)
    fits = {bool: bool, int: numbers.Integral, float: numbers.Real}[kind]
    ok = isinstance(value, fits) and (kind is bool or not isinstance(value, bool))
    _need(ok, name, f"is {value!r}", f"it takes {kind.__name__}")
    number = kind(value)
    _need(math.isfinite(number), name, f"is {value!r}", "use a finite number")
    return number


def _parse(name: str, text: str, kind: Any) -> Any:
    """`text` as a value of the field's type."""
    origin = typing.get_origin(kind)
    if origin is list:
        return [item.strip() for item in text.split(",") if item.strip()]
    if origin in (typing.Union, types.UnionType) or origin is Literal or kind is str:
        return text.strip()
    try:
        if kind is bool:
            return _BOOLEANS[text.strip().lower()]
        return kind(text.strip())
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{name} takes {kind.__name__}, not {text!r}", field=name) from error
