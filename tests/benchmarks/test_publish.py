"""The model that ships after a training."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from benchmarks.publish import write_published
from tests.benchmarks.finished_run import finished_run
from tests.trainer import conftest as training
from trainer.config import GRPOConfig

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures


@pytest.mark.slow
def test_the_weights_are_the_runs_and_the_card_has_the_measurements(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    console = Console(file=io.StringIO(), width=200)
    latest, out = finished_run(config, model, tokenizer, tmp_path, 2, console), tmp_path / "shipped"
    write_published(latest, out, console)
    trained = AutoModelForCausalLM.from_pretrained(latest / "model", dtype=torch.float32)
    shipped = AutoModelForCausalLM.from_pretrained(out)
    assert shipped.dtype == torch.bfloat16
    for name, value in trained.state_dict().items():
        assert torch.equal(shipped.state_dict()[name], value.bfloat16()), name
    lines = (out / "README.md").read_text().splitlines()
    assert "`base` after 2 steps of GRPO with 8 episodes each: `make train SEED=42`, then" in lines
    rows = [line for line in lines if line.startswith("| ")]
    assert [row.count("[") for row in rows[1:]] == [3, 2]  # an interval of each measurement
