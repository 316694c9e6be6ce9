"""Muon's orthogonalization in float32, for processors that only emulate bfloat16.

`torch.optim.Muon` computes it in bfloat16 on every device. On a CPU without native bfloat16, that
was 60 % of the time of pretraining: 180 ms for a matrix of 512 x 192, which takes 8 ms in float32.
"""

import torch
from torch import Tensor
from torch.optim import _muon


def orthogonalize(
    grad: Tensor, ns_coefficients: tuple[float, float, float], ns_steps: int, eps: float
) -> Tensor:
    """Return nearly U V^T of `grad` = U S V^T, a matrix, as Muon's own function of its arguments.

    Source: K. Jordan and others, "Muon: an optimizer for hidden layers in neural networks" (2024).
    """
    a, b, c = ns_coefficients
    wide = grad.float() if grad.size(0) <= grad.size(1) else grad.float().T
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if grad.size(0) <= grad.size(1) else wide.T


def use_float32() -> None:
    """Let every Muon of this process orthogonalize in float32."""
    _muon._zeropower_via_newtonschulz = orthogonalize
