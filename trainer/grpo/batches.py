"""A generation batch as trl makes it, split into micro-batches that cost little: rows of similar
length, without columns of padding and without rows whose advantage is 0.

A batch is a dictionary of values by row: `prompt_mask` [B, P], padded on the left,
`completion_mask` [B, C], padded on the right, `advantages` [B] and others.
"""

from typing import Any

import torch

Tensor = torch.Tensor
Batch = dict[str, Any]
IDLE_IDS = 2  # of an idle row's prompt: a forward pass takes all ids but the last


def both_verdicts(correct: Tensor, size: int) -> Tensor:
    """Return whether a row's group has a right and a wrong episode, [B] of bool.

    `correct` [B] is 1 or 0, NaN for a lost episode; `size` consecutive rows are a group.
    """
    groups = correct.view(-1, size)
    both = (groups == 1).any(1) & (groups == 0).any(1)
    return both.repeat_interleave(size)


def without_idle_rows(batch: Batch) -> Batch:
    """Return a batch in which rows with advantage 0 have two ids, and none that the loss counts.

    The loss of such a row has no gradient, so an update is the same, and cheaper. The number of
    rows and the divisor of the loss stay as they are.
    """
    idle = batch["advantages"] == 0
    prompt_mask, completion_mask = batch["prompt_mask"].clone(), batch["completion_mask"].clone()
    prompt_mask[idle, :-IDLE_IDS] = 0
    completion_mask[idle] = 0
    return {**batch, "prompt_mask": prompt_mask, "completion_mask": completion_mask}


def split_updates(batch: Batch, updates: int) -> list[Batch]:
    """Return `updates` parts of a batch, each with its longest rows first.

    So a lack of memory shows early. Part k has every `updates`th row from row k on: the same rows
    however many processes share the batch, and if `updates` divides the size of a group, as many
    rows of each group as other parts.
    """
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    order = torch.argsort(lengths, descending=True, stable=True)
    parts = (order[order % updates == k] for k in range(updates))
    return [{name: _rows(value, rows) for name, value in batch.items()} for rows in parts]


def _rows(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value[rows] if value.ndim else value
    return value if value is None else [value[index] for index in rows.tolist()]


def trim(batch: Batch) -> Batch:
    """Return a micro-batch without the columns that are padding in every row.

    Tensors of completions are recognised by their shape [B, C].
    """
    completions = batch["completion_mask"]
    first = batch["prompt_mask"].shape[1] - _width(batch["prompt_mask"].flip(1))
    last = max(1, _width(completions))  # trl needs one column
    trimmed = {}
    for name, value in batch.items():
        if name.startswith("prompt_") and isinstance(value, Tensor):
            value = value[:, first:]
        elif isinstance(value, Tensor) and value.shape == completions.shape:
            value = value[:, :last]
        trimmed[name] = value
    return trimmed


def _width(mask: Tensor) -> int:
    """Return the number of columns up to the last one that is set in any row."""
    columns = mask.bool().any(0).nonzero()
    return int(columns[-1]) + 1 if len(columns) else 0


def counted(batch: Batch) -> Tensor:
    """Return the mask of the tokens that the loss counts, [B, C]."""
    mask: Tensor = batch["completion_mask"] * batch.get("tool_mask", 1)
    return mask
