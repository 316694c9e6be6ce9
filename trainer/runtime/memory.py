"""The memory of a training process, calculated from a model's config.json and the settings.

No weights are read: layers are built from fake tensors, which have shapes but no content, and run
once to see what they keep for the backward pass.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from trainer.config import GRPOConfig
from trainer.presets import SAVED_AS, parameter_count
from trainer.runtime.optional_packages import can_compile_kernels
from trainer.runtime.out_of_memory import remedies
from trainer.runtime.precision import cast_linear_layers, precision

GIB = 2**30
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")
PROCESS = GIB  # torch and the libraries (0.4 GiB), a GPU's context, what allocators hold unused
# trl's LM head works in tiles of these numbers of tokens and vocabulary entries
TILE_TOKENS, TILE_ENTRIES = 4096, 32768
# bytes per tile entry: eight temporary tensors of float32 and one of booleans; a GPU's kernel has
# none
LOGIT_BYTES = 4
TILE_BYTES = 33
SMALL = 50_000_000  # parameters that train in any machine's memory
DRAWING_BYTES = 28  # per row and vocabulary entry, while ids are drawn


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of a step, by what holds them.

    `cache` is the rollouts' KV cache, full; `copies` are the weights with which rollouts compute:
    autocast's casts, or on a CPU packed ones (`packed_weights`). `activations` are what a
    micro-batch of rows as long as the context keeps for the backward pass; `workspace` is for the
    logits of a tile or the backward pass of a layer, whichever takes more. `measuring` are all
    weights in float32 and their copies, before and after training, where episodes are played as
    memory allows.
    """

    weights: int
    gradients: int
    optimizer: int
    cache: int
    copies: int
    activations: int
    workspace: int
    measuring: int

    @property
    def rollout(self) -> int:
        return PROCESS + self.weights + self.optimizer + self.cache + self.copies

    @property
    def update(self) -> int:
        kept = self.weights + self.optimizer + self.gradients
        return PROCESS + kept + self.activations + self.workspace

    @property
    def peak(self) -> int:
        return max(self.rollout, self.update, PROCESS + self.measuring)

    def __str__(self) -> str:
        held = {name: size for name, size in vars(self).items() if name != "measuring"}
        parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in held.items())
        return (
            f"{self.peak / GIB:.1f} GiB to train: measurements take "
            f"{(PROCESS + self.measuring) / GIB:.1f}, rollouts {self.rollout / GIB:.1f}, updates "
            f"{self.update / GIB:.1f} ({parts}, process {PROCESS / GIB:.1f})"
        )


def training_memory(
    model_config: Mapping[str, Any], config: GRPOConfig, compute: torch.dtype, *, gpu: bool = False
) -> Memory:
    """Return the memory of one process that trains all rollouts of a step, at full context.

    `compute` is the number format, `gpu` whether a GPU's kernels are used. Raises `ValueError` for
    a config.json without a causal language model.
    """
    shape = _architecture(model_config).get_text_config()
    window = min(config.max_context_tokens, shape.max_position_embeddings)
    rows, layers = config.per_device_train_batch_size, shape.num_hidden_layers
    size, lower = compute.itemsize, compute is not torch.float32
    # format of the frozen weights; bfloat16 stands in for float16, which has its size
    base = torch.bfloat16 if config.lora_rank and lower else torch.float32

    with FakeTensorMode():
        model = _model(model_config, layers, base)
        adapters = _add_adapters(model, config.lora_rank)
        parameters = sum(one.numel() for one in model.parameters())
        weights = sum(one.nbytes for one in model.parameters())
        head = shape.vocab_size * shape.hidden_size
        once = _kept_bytes(model_config, 1, base, config.lora_rank, rows, window, compute)
        twice = _kept_bytes(model_config, 2, base, config.lora_rank, rows, window, compute)
    layer = twice - once
    activations, backward = once - layer, layer // 2  # gradients are freed one after another
    every_cast = (parameters - head) * size if lower else 0
    casts = 0 if adapters else every_cast  # LoRA's frozen weights are stored so
    packed = 0 if gpu or not lower else every_cast + head * 4
    if config.gradient_checkpointing:  # keeps each layer's input, and computes the layer again
        activations += layers * rows * window * shape.hidden_size * 4
        backward += layer
        activations += casts
    else:
        activations += layers * layer
    trained = adapters or parameters
    token = cache_token_bytes(shape, compute)
    turns = config.step_budget * config.max_new_tokens
    tile = min(rows * min(turns, window), TILE_TOKENS)
    kernels = gpu and can_compile_kernels()
    temporary = 0 if kernels else TILE_BYTES * min(shape.vocab_size, TILE_ENTRIES)
    return Memory(
        weights=weights + adapters * 4,
        # that of the LM head is added to earlier micro-batches' only at the end
        gradients=4 * (trained + (0 if adapters else head)),
        optimizer=2 * trained * 4,
        cache=config.rollouts_per_step * (window * token + shape.vocab_size * DRAWING_BYTES),
        copies=packed or casts,
        activations=activations,
        workspace=max(tile * (TILE_ENTRIES * LOGIT_BYTES + temporary), backward),
        measuring=parameters * 4 + (packed or every_cast),
    )


def machine_memory() -> int:
    """Return the bytes of this machine's memory, or of the container's limit if that is less."""
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(CGROUP_MEMORY_MAX.read_text()))
    except (OSError, ValueError):
        return total  # no limit


def shortage(
    model_config: Mapping[str, Any], config: GRPOConfig, processes: int = 1, sharing: int = 1
) -> str | None:
    """Return a warning if `processes`, this one and its like, can need more than a CPU's memory.

    `sharing` processes, also of other machines, share the rollouts of a step. Linux kills a process
    that takes too much, without an error that could say so. None if they fit, if the device is a
    GPU, or if the need can't be calculated.
    """
    device, dtype = precision(config.device, config.dtype)
    parameters = parameter_count(model_config)
    if device != "cpu" or config.sharding != "none":
        return None
    if parameters is None or processes * parameters < SMALL:
        return None
    try:
        memory = training_memory(model_config, config, dtype)
    except Exception:  # as in doctor: other architectures lack this or that
        return None
    memory = replace(memory, cache=memory.cache // sharing)
    own = psutil.Process().memory_info().rss
    free = min(machine_memory(), psutil.virtual_memory().available + processes * own)
    if processes * memory.peak <= free:
        return None
    each = f" in each of {processes} processes" if processes > 1 else ""
    return (
        f"training can take {memory.peak / GIB:.1f} GiB{each} where rows fill the context, and "
        f"{free / GIB:.1f} GiB are available: the system may kill it. To reduce memory: "
        f"{'; or '.join(remedies(config))}"
    )


def cache_token_bytes(shape: Any, compute: torch.dtype) -> int:
    """Return the bytes of one token in the KV cache: a key and a value per layer and head.

    `shape` is the transformers configuration of the text model.
    """
    head_dim = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    return int(2 * shape.num_hidden_layers * heads * head_dim * compute.itemsize)


def _architecture(model_config: Mapping[str, Any], **changes: Any) -> Any:
    from transformers import AutoConfig

    known = {name: value for name, value in model_config.items() if name != SAVED_AS}
    return AutoConfig.for_model(**{**known, **changes})


def _model(model_config: Mapping[str, Any], layers: int, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    changes: dict[str, Any] = {"num_hidden_layers": layers}
    if "layer_types" in model_config:
        changes["layer_types"] = model_config["layer_types"][:layers]
    architecture = _architecture(model_config, **changes)
    options = {"dtype": torch.float32, "attn_implementation": "sdpa"}
    model = AutoModelForCausalLM.from_config(architecture, **options)
    cast_linear_layers(model, dtype)
    return model


def _add_adapters(model: Any, rank: int) -> int:
    """Freeze `model` and add LoRA to its linear layers as peft does; return their parameters."""
    if not rank:
        return 0
    count = 0
    model.requires_grad_(False)
    model.enable_input_require_grads()
    for module in list(model.modules()):
        if isinstance(module, nn.Linear) and module is not model.get_output_embeddings():
            down = nn.Linear(module.in_features, rank, bias=False)
            up = nn.Linear(rank, module.out_features, bias=False)
            module.register_forward_hook(
                lambda _, inputs, output, down=down, up=up: (
                    output + up(down(inputs[0].to(down.weight.dtype)))
                )
            )
            count += down.weight.numel() + up.weight.numel()
    return count


def _kept_bytes(
    model_config: Mapping[str, Any],
    layers: int,
    dtype: torch.dtype,
    rank: int,
    rows: int,
    window: int,
    compute: torch.dtype,
) -> int:
    """Return the bytes that a model's forward pass keeps for the backward pass, without logits."""
    model = _model(model_config, layers, dtype)
    _add_adapters(model, rank)
    model.train()
    ids = torch.zeros((rows, window), dtype=torch.long)
    mask = torch.ones((rows, 1, window, window), dtype=torch.bool)
    # a CPU has autocast for bfloat16 only; float16 has its size
    lower = nullcontext() if compute is torch.float32 else torch.autocast("cpu", torch.bfloat16)
    with _kept(model, window) as kept, lower:
        model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(storage.nbytes() for storage in kept.values())


@contextmanager
def _kept(model: Any, window: int) -> Iterator[dict[int, Any]]:
    """Yield the storages that autograd saves in the block, by identity, but weights and masks.

    An update's rows are padded on the right, where causal attention needs no mask; transformers
    would make one of fake tensors.
    """
    weights = {one.untyped_storage()._cdata for one in model.parameters()}
    storages: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        mask = tensor.dim() == 4 and tensor.shape[-2:] == (window, window)
        if storage._cdata not in weights and not mask:
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield storages
