"""FSDP: weights, gradients and the optimizer's state divided among the processes of a run.

accelerate and torch do the work. What is here is how a run asks for it (`fsdp_options`), and the
two moments at which it needs whole weights: while it samples (`whole_weights`), and where it writes
or hashes them (`whole_state`). All processes call these together, or each waits for the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy

from trainer.config import GRPOConfig
from trainer.errors import ConfigError
from trainer.runtime.out_of_memory import reporting_out_of_memory


def check_sharding(config: GRPOConfig, dtype: torch.dtype, processes: int) -> None:
    """Raise `ConfigError` where `config.sharding` needs more processes or another dtype."""
    if config.sharding == "none":
        return
    if processes == 1:
        raise ConfigError(
            f"sharding is {config.sharding}, but this run has one process, which would hold all "
            "shards: add --processes N, or start a run with sharding=none",
            field="sharding",
        )
    if dtype is torch.float16:
        raise ConfigError(
            f"sharding is {config.sharding}, but dtype {config.dtype} means float16 here, whose "
            "loss scaling was not tested with it: set dtype=bfloat16 or float32, or sharding=none",
            field="sharding",
        )


def fsdp_options(config: GRPOConfig) -> dict[str, Any]:
    """Return the fields of `transformers.TrainingArguments` that shard a run as `config` says.

    Gradients are reduced after every micro-batch: to the end of a step, each process would
    accumulate those of all weights.
    """
    if config.sharding == "none":
        return {}
    return {
        "fsdp": True,
        "fsdp_config": {"activation_checkpointing": config.gradient_checkpointing},
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
    }


def gathered_precision(dtype: torch.dtype) -> MixedPrecisionPolicy:
    """Return the number format of gathered weights: the `dtype` that a model computes in.

    accelerate's own would also reduce gradients in it, and round log-probabilities to it.
    """
    lower = dtype is not torch.float32
    return MixedPrecisionPolicy(
        param_dtype=dtype if lower else None, reduce_dtype=torch.float32 if lower else None
    )


def is_sharded(model: Any) -> bool:
    """Return whether `model` holds only this process's part of its weights."""
    return isinstance(model, FSDPModule)


@contextmanager
def whole_weights(model: Any, config: GRPOConfig) -> Iterator[None]:
    """Gather the weights of a sharded `model` in every process for the block.

    Processes sample different numbers of tokens, so a forward pass of one can't wait for the
    others' weights. Raises `OOMError` if they don't fit beside the rest.
    """
    if not is_sharded(model):
        yield
        return
    shards = [one for one in model.modules() if isinstance(one, FSDPModule)]
    model.set_reshard_after_forward(False)
    try:
        with reporting_out_of_memory(config, "gathering all weights to sample"):
            for one in shards:
                one.unshard()
        yield
    finally:
        for one in shards:
            one.reshard()
        model.set_reshard_after_forward(True)


def whole_state(model: Any) -> dict[str, Any] | None:
    """Return a sharded model's whole state on the CPU of process 0, and nothing in the others.

    Gathers one weight after another. None of a model that is not sharded.
    """
    if not is_sharded(model):
        return None
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = get_model_state_dict(model, options=options)
    tie(model, state)
    return state


def tie(model: Any, state: dict[str, Any]) -> None:
    """Let tied weights be one tensor of a gathered `state`, so that they are saved once."""
    for name, source in model.all_tied_weights_keys.items():
        if source in state:
            state[name] = state[source]


def average_gradients(model: nn.Module, processes: int) -> None:
    """Replace every process's gradients of a model that is not sharded by their mean."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= processes
    means = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
