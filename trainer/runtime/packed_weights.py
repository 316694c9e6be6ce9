"""Weights packed for the products of a decoding step on a CPU, whose kernels would by default
rearrange a matrix again for every token."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

Tensor = torch.Tensor

LEAST_WEIGHTS = 2**19  # smaller matrices, all of the offline model's, stay in the processor's cache


@contextmanager
def packed_weights(model: Any) -> Iterator[None]:
    """Compute the large linear layers of `model` from packed copies of their weights for the block.

    These are the layers that compute in bfloat16, and an LM head whose logits are made float32. The
    copies take the memory of the weights once more. The block must not change weights, nor compute
    gradients.
    """
    head = model.get_output_embeddings()
    with ExitStack() as stack, torch.no_grad():
        for layer in model.modules() if _has_kernels() else ():
            if type(layer) is nn.Linear and _can_pack(layer.weight):
                own = "forward" in vars(layer)  # may compute something else, but for the head's
                if own and layer is head:
                    stack.enter_context(_forward_replaced(layer, _packed(layer, torch.float32)))
                elif not own and _compute_dtype(layer.weight) is torch.bfloat16:
                    stack.enter_context(_forward_replaced(layer, _packed(layer, torch.bfloat16)))
        yield


def _can_pack(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.numel() >= LEAST_WEIGHTS


def _compute_dtype(weight: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype


def _has_kernels() -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packed(layer: nn.Linear, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
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
