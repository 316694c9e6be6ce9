"""The memory of a training process, estimated from a model's config.json and the settings."""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch

from trainer.config.presets import parameter_count
from trainer.config.settings import GRPOConfig
from trainer.runtime.out_of_memory import remedies
from trainer.runtime.precision import precision

GIB = 2**30
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")
PROCESS = GIB  # torch and the libraries (0.4 GiB), a GPU's context, what allocators hold unused
SMALL = 50_000_000  # parameters that train in any machine's memory
# trl's LM head works in tiles of these numbers of tokens and vocabulary entries: one float32 per
# entry, and without a GPU's kernel eight temporary ones and a boolean
TILE_TOKENS, TILE_ENTRIES = 4096, 32768
LOGIT_BYTES, TEMPORARY_BYTES = 4, 33
DRAWING_BYTES = 28  # per row and vocabulary entry, while ids are drawn


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of each kind of work; `measuring` is before and after training, where
    episodes are played as memory allows."""

    measuring: int
    rollout: int
    update: int

    @property
    def peak(self) -> int:
        return max(self.measuring, self.rollout, self.update)

    def __str__(self) -> str:
        return (
            f"{self.peak / GIB:.1f} GiB to train: measurements take {self.measuring / GIB:.1f}, "
            f"rollouts {self.rollout / GIB:.1f}, updates {self.update / GIB:.1f}"
        )


def training_memory(
    model_config: Mapping[str, Any],
    config: GRPOConfig,
    compute: torch.dtype,
    *,
    gpu: bool = False,
    sharing: int = 1,
) -> Memory | None:
    """Return the memory of one of the `sharing` processes that play a step's rollouts, with every
    row as long as the context. `compute` is the number format, `gpu` whether a GPU's kernels are
    used. None if config.json is not that of a decoder with gated MLPs."""
    parameters = parameter_count(model_config)
    if parameters is None:
        return None
    shape = model_config.get("text_config", model_config)
    hidden, mlp = shape["hidden_size"], shape["intermediate_size"]
    layers, vocabulary = shape["num_hidden_layers"], shape["vocab_size"]
    size = shape.get("head_dim") or hidden // shape["num_attention_heads"]
    queries = size * shape["num_attention_heads"]
    keys = size * (shape.get("num_key_value_heads") or shape["num_attention_heads"])
    window = min(config.max_context_tokens, shape.get("max_position_embeddings", 2**31))
    lower, lora = compute is not torch.float32, config.lora_rank > 0
    head = hidden * vocabulary
    linear = layers * (2 * hidden * (queries + keys) + 3 * hidden * mlp)

    # LoRA stores frozen layers in the number format, other weights are float32; autocast casts
    # those, and a CPU packs all of them (`packed_weights`)
    adapters = layers * config.lora_rank * (3 * (hidden + mlp) + 4 * hidden + 2 * (queries + keys))
    trained = adapters if lora else parameters
    weights = 4 * (parameters + adapters) - (2 * linear if lora and lower else 0)
    casts = 2 * linear if lower else 0
    packed = casts + 4 * head if lower and not gpu else 0
    rollouts = config.rollouts_per_step // sharing
    cache = rollouts * (window * 2 * layers * keys * compute.itemsize + vocabulary * DRAWING_BYTES)

    # numbers that a layer keeps per token for the backward pass: measured with Llama, Qwen2 and
    # Qwen3, which normalizes queries and keys; autocast keeps two thirds of the bytes
    normalized = str(shape.get("model_type")).startswith("qwen3")
    heads = 5 * queries + 4 * keys if normalized else 3 * (queries + keys)
    tokens = config.per_device_train_batch_size * window
    layer = tokens * (6 * hidden + heads + 4 * mlp) * (8 if lower else 12) // 3
    if config.gradient_checkpointing:  # keeps each layer's input, and computes the layer again
        activations, backward = layers * tokens * hidden * 4, layer + layer // 2
    else:
        activations, backward = layers * layer, layer // 2
    turns = config.step_budget * config.max_new_tokens
    tile = min(config.per_device_train_batch_size * min(turns, window), TILE_TOKENS)
    entry = tile * LOGIT_BYTES
    if not (gpu and can_compile_kernels()):
        entry += TEMPORARY_BYTES * min(vocabulary, TILE_ENTRIES) * tile // TILE_ENTRIES
    # the gradient of the LM head is added to earlier micro-batches' only at the end
    gradients = 4 * (trained + (0 if lora else head))
    adam = 8 * trained
    return Memory(
        measuring=PROCESS + 4 * parameters + (packed or casts),
        rollout=PROCESS + weights + adam + cache + (packed or (0 if lora else casts)),
        update=PROCESS
        + weights
        + adam
        + gradients
        + (0 if lora else casts)
        + activations
        + max(TILE_ENTRIES * entry, backward),
    )


def machine_memory() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(CGROUP_MEMORY_MAX.read_text()))
    except (OSError, ValueError):
        return total  # no limit


def shortage(
    model_config: Mapping[str, Any], config: GRPOConfig, processes: int = 1, sharing: int = 1
) -> str | None:
    """Return a warning if `processes`, this one and its like, can need more than a CPU's memory:
    Linux kills a process that takes too much, without an error that could say so."""
    device, dtype = precision(config.device, config.dtype)
    parameters = parameter_count(model_config) or 0
    if device != "cpu" or processes * parameters < SMALL:
        return None
    memory = training_memory(model_config, config, dtype, sharing=sharing)
    own = psutil.Process().memory_info().rss
    free = min(machine_memory(), psutil.virtual_memory().available + processes * own)
    if memory is None or processes * memory.peak <= free:
        return None
    each = f" in each of {processes} processes" if processes > 1 else ""
    return (
        f"training can take {memory.peak / GIB:.1f} GiB{each} where rows fill the context, and "
        f"{free / GIB:.1f} GiB are available: the system may kill it. To reduce memory: "
        f"{'; or '.join(remedies(config))}"
    )


def cache_token_bytes(shape: Any, compute: torch.dtype) -> int:
    """Return the bytes of a token in the KV cache, by transformers' config of a text model."""
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return int(2 * shape.num_hidden_layers * heads * head_dim * compute.itemsize)


def can_compile_kernels() -> bool:
    """Return whether Triton finds a C compiler and Python's headers when kernels are first used."""
    compiler = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").is_file()
