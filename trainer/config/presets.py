"""The presets, and the rule by which every command takes one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

OFFLINE_MODEL = "data/models/sqlenv-tiny"
TRAINED_MODEL = "data/models/sqlenv-tiny-trained"  # after `make train SEED=1`
GENERAL = "qwen3-1.7b"  # for a model of unknown size, such as one behind a server
SAVED_AS = "sqlenv"  # the key in config.json of a model that this trainer wrote
# the settings that decide, beside the weights, what a model reads and writes
MODEL_SETTINGS = (
    *("system_prompt", "explain", "one_action_per_turn", "max_prose_tokens", "thinking"),
    *("max_new_tokens", "max_context_tokens"),
)
KEPT = (*MODEL_SETTINGS, "step_budget")  # a trained model keeps them: it has learned to play so

# of the measured runs: docs/results.md and docs/real-models.md
_GRPO = {
    "num_generations": 8,
    # by group, a group without a right answer learns from its step costs alone, scaled up to unit
    # variance: success of the offline model fell from 0.15 to 0.03 in 40 steps, as answering at
    # once became the cheapest thing to do
    "scale_rewards": "batch",
    # they teach costs alone, and take most of the update's time
    "skip_one_verdict_groups": True,
    "updates_per_batch": 2,
    "lr_scheduler": "linear",  # at a constant rate, the offline model ended lower
    "warmup_steps": 5,
    "logging_steps": 1,
}
# of the gold answers of Spider, 1 % have more than 384 tokens, and 8 % more than 128
_LENGTHS = {"max_new_tokens": 384, "max_context_tokens": 2048}
_LORA = {"lora_rank": 16}
_QWEN3 = {
    **_GRPO,
    **_LENGTHS,
    **_LORA,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 16,  # 16 / 2 updates: up to 8 processes
    "gradient_checkpointing": True,
    "learning_rate": 5e-5,
    "save_steps": 50,
}

PRESETS: dict[str, dict[str, Any]] = {
    "offline": {
        **_GRPO,
        "model_name": OFFLINE_MODEL,
        "device": "cpu",
        "dtype": "float32",
        "system_prompt": "short",
        "explain": [],
        "one_action_per_turn": False,
        "max_prose_tokens": 0,
        "max_new_tokens": 96,  # 64 are too few for 7 % of the gold queries
        "max_context_tokens": 1024,
        # 8 questions x 8 generations in 16 micro-batches
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 16,
        "updates_per_batch": 4,
        "learning_rate": 3e-4,
        "temperature": 1.2,  # at 1, the episodes of a question hardly differ
        "max_steps": 72,
        "save_steps": 20,
    },
    "smollm2-135m": {
        **_GRPO,
        **_LENGTHS,
        "model_name": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 16,
        "learning_rate": 2e-5,
        "max_steps": 100,
        "save_steps": 10,
    },
    "qwen2.5-coder-0.5b": {
        **_GRPO,
        **_LENGTHS,
        **_LORA,
        "model_name": "Qwen/Qwen2.5-Coder-0.5B-Instruct",
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 32,
        "learning_rate": 1.5e-4,
        "max_steps": 100,
        "save_steps": 10,
    },
    "qwen3-0.6b": {**_QWEN3, "model_name": "Qwen/Qwen3-0.6B"},
    "qwen3-1.7b": {**_QWEN3, "model_name": "Qwen/Qwen3-1.7B"},
    "qwen3-8b": {**_QWEN3, "model_name": "Qwen/Qwen3-8B"},
}


class Needs(NamedTuple):
    """The size of a preset's model, and the memory of the smallest machine or GPU to train it."""

    parameters: int
    memory_gb: int
    gpu: bool = False  # on CPU cores a step takes many minutes


NEEDS = {
    "offline": Needs(2_164_672, 4),
    "smollm2-135m": Needs(134_515_008, 16),
    "qwen2.5-coder-0.5b": Needs(494_032_768, 16),
    "qwen3-0.6b": Needs(596_049_920, 16, gpu=True),
    "qwen3-1.7b": Needs(1_720_574_976, 24, gpu=True),
    "qwen3-8b": Needs(8_190_735_360, 80, gpu=True),
}


@dataclass(frozen=True)
class Choice:
    """A preset and why it was taken. `settings` override it, as `GRPOConfig.preset` takes them."""

    preset: str
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"preset {self.preset}: {self.why}"


def choose_preset(
    model: str | None = None,
    preset: str | None = None,
    model_config: Mapping[str, Any] | None = None,
) -> Choice:
    """Return the preset of `model`, a folder or name; `model_config` is its config.json, if known.
    A named `preset` wins, then the model's name, then its size: docs/own-model.md. In these two, a
    model that this trainer wrote keeps the settings `KEPT` of its training."""
    named = {} if model is None else {"model_name": model}
    if preset is not None:
        return Choice(preset, "given with --preset", named)
    if model is None:
        return Choice("offline", "no --model is given")
    name, parameters = PurePath(model).name, parameter_count(model_config or {})
    if matches := [known for known in PRESETS if name.lower().startswith(known)]:
        preset, why = matches[0], f"the name {name} starts with it"
    elif parameters is not None:
        preset = min(NEEDS, key=lambda known: abs(math.log(parameters / NEEDS[known].parameters)))
        why = f"nearest in size ({parameters / 1e6:,.0f} million parameters)"
    else:
        preset, why = GENERAL, f"the size of {model} is unknown"
    saved = (model_config or {}).get(SAVED_AS)
    kept: dict[str, Any] = {}
    if isinstance(saved, dict):
        # a model that was saved without these is older than they are
        saved = {"explain": [], "max_prose_tokens": 0, **saved}
        kept = {key: saved[key] for key in KEPT if key in saved}
    if kept:
        why += ", with the prompt and limits of its training"
    return Choice(preset, why, {**named, **kept})


def parameter_count(model_config: Mapping[str, Any]) -> int | None:
    """Return the number of parameters by a config.json, without biases and the norms of heads,
    below 0.1 %. None if it is not a decoder with gated MLPs, such as Llama's or Qwen's."""
    text = model_config.get("text_config", model_config)
    try:
        hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
        head = int(text.get("head_dim") or hidden // heads)
        kv_heads = int(text.get("num_key_value_heads") or heads)
        attention, mlp = 2 * head * (heads + kv_heads), 3 * int(text["intermediate_size"])
        layer = hidden * (attention + mlp + 2)  # with the gains of two norms
        tables = 1 if text.get("tie_word_embeddings", False) else 2
        embeddings = tables * hidden * int(text["vocab_size"])
        count = embeddings + int(text["num_hidden_layers"]) * layer + hidden
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None
    return count if count > 0 else None
