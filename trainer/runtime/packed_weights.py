"""Weights packed for the products of a decoding step on a CPU.

A decoding step multiplies a row per episode, some tens, by every weight matrix of a model. torch
hands oneDNN the matrices as they are stored, and oneDNN rearranges each of them for its kernels,
again for every token. Here that is done once, for as long as the weights do not change.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

Tensor = torch.Tensor

LEAST_WEIGHTS = 2**18  # a smaller matrix stays in the processor's cache


@contextmanager
def packed_weights(model: Any) -> Iterator[None]:
    """Compute the large linear layers of `model` from packed copies of their weights for the block.

    The copies are in autocast's number format where it is on; that of the LM head is float32, as
    logits are (`trainer.runtime.precision`). The block must not change weights, and gets no
    gradients. A model on a GPU, or without oneDNN, computes as before.
    """
    head = model.get_output_embeddings()
    with ExitStack() as stack, torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and layer.weight.numel() >= LEAST_WEIGHTS:
                dtype = torch.float32 if layer is head else _compute_dtype(layer.weight)
                if _can_pack(layer.weight, dtype):
                    stack.enter_context(_forward_replaced(layer, _packed(layer, dtype)))
        yield


def _compute_dtype(weight: Tensor) -> torch.dtype:
    place = weight.device.type
    return torch.get_autocast_dtype(place) if torch.is_autocast_enabled(place) else weight.dtype


def _can_pack(weight: Tensor, dtype: torch.dtype) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def _packed(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the forward function of `layer` in `dtype`, from a packed copy of its weights."""
    weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.to(dtype))
    bias = None if layer.bias is None else layer.bias.to(dtype)

    def forward(hidden: Tensor) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        result: Tensor = product(hidden.to(dtype), weight, bias, "none", [], "")
        return result

    return forward


@contextmanager
def _forward_replaced(layer: nn.Module, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    own = layer.__dict__.get("forward")  # what an earlier change gave this layer alone
    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if own is not None:
            layer.forward = own
