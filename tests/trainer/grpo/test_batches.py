"""A generation batch, split into updates and micro-batches."""

import math
from typing import Any

import pytest
import torch

from trainer.grpo.batches import both_verdicts, split_updates, trim


def batch() -> dict[str, Any]:
    """Return three rows: prompts padded on the left, completions on the right, as trl pads them."""
    return {
        "prompt_ids": torch.tensor([[0, 0, 7], [0, 5, 6], [0, 0, 8]]),
        "prompt_mask": torch.tensor([[0, 0, 1], [0, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[1, 0, 0, 0], [2, 3, 0, 0], [4, 5, 6, 0]]),
        "completion_mask": torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]),
        "tool_mask": torch.tensor([[1, 1, 1, 1], [1, 0, 1, 1], [1, 0, 1, 1]]),
        "advantages": torch.tensor([0.1, 0.2, 0.0]),
        "num_items_in_batch": torch.tensor(5),
        "ref_per_token_logps": None,
    }


def test_a_group_has_both_verdicts_whatever_was_lost() -> None:
    lost = math.nan
    groups = [[1, 1, 1], [0, 0, 0], [1, lost, 0], [1, lost, 1], [lost, lost, lost]]
    found = both_verdicts(torch.tensor(groups).flatten(), 3)
    assert found.view(-1, 3).tolist() == [[both] * 3 for both in (False, False, True, False, False)]


def test_each_update_has_as_many_rows_of_each_group() -> None:
    groups = torch.arange(3).repeat_interleave(4)  # 3 questions with 4 rollouts
    lengths = torch.tensor([1, 2, 3, 4, 1, 9, 3, 4, 1, 2, 3, 4])
    mask = (torch.arange(9) < lengths.unsqueeze(1)).long()
    parts = split_updates({"completion_mask": mask, "prompt_mask": mask[:, :1], "group": groups}, 2)
    assert [part["completion_mask"].sum(1).tolist() for part in parts] == [
        [3, 3, 3, 1, 1, 1],
        [9, 4, 4, 4, 2, 2],
    ]
    assert all(sorted(part["group"].tolist()) == [0, 0, 1, 1, 2, 2] for part in parts)


def test_only_padding_is_cut() -> None:
    found = trim(batch())
    assert found["prompt_ids"].tolist() == [[0, 7], [5, 6], [0, 8]]
    assert found["prompt_mask"].tolist() == [[0, 1], [1, 1], [0, 1]]
    assert found["completion_ids"].tolist() == [[1, 0, 0], [2, 3, 0], [4, 5, 6]]
    assert found["tool_mask"].tolist() == [[1, 1, 1], [1, 0, 1], [1, 0, 1]]
    assert found["advantages"].tolist() == pytest.approx([0.1, 0.2, 0.0])
    empty = batch() | {"completion_mask": torch.zeros(3, 4, dtype=torch.long)}
    assert trim(empty)["completion_ids"].shape == (3, 1)  # trl needs a column
