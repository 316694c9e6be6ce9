"""Gradients of several processes."""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module, processes: int) -> None:
    """Replace every process's gradients by their mean, in one message."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= processes
    means = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean.view_as(gradient))
