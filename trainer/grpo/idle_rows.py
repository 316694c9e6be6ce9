"""Rows of a generation batch that teach nothing: their advantage is 0.

The loss of such a row has no gradient, so an update is the same without it, and cheaper. With
`skip_one_verdict_groups` that holds for every group whose episodes are all right or all wrong.
"""

from typing import Any

import torch

Tensor = torch.Tensor
IDS_LEFT = 2  # of an idle row's prompt: a forward pass takes all ids but the last


def both_verdicts(correct: Tensor, size: int) -> Tensor:
    """Return whether a row's group has a right and a wrong episode, [B] of bool.

    `correct` [B] is 1 or 0, NaN for a lost episode; `size` consecutive rows are a group.
    """
    groups = correct.view(-1, size)
    both = (groups == 1).any(1) & (groups == 0).any(1)
    return both.repeat_interleave(size)


def without_idle_rows(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a generation batch in which idle rows have two ids, and none that the loss counts.

    `batch` holds `advantages` [B], `prompt_mask` [B, P], padded on the left, and `completion_mask`
    [B, C]. The number of rows and the divisor of the loss stay as they are, so that the gradient is
    the same.
    """
    idle = batch["advantages"] == 0
    prompt_mask, completion_mask = batch["prompt_mask"].clone(), batch["completion_mask"].clone()
    prompt_mask[idle, :-IDS_LEFT] = 0
    completion_mask[idle] = 0
    return {**batch, "prompt_mask": prompt_mask, "completion_mask": completion_mask}
