"""The model that ships after a training."""

import io

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from benchmarks.publish import write_published
from tests.trainer import conftest as training
from tests.trainer.small_data import make_data
from trainer.grpo.grpo_job import GrpoJob
from trainer.run.inputs import JobOptions
from trainer.run.job import run_job

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures


@pytest.mark.slow
def test_the_weights_are_the_runs_and_the_card_has_the_measurements(
    config, model, tokenizer, tmp_path
):
    console = Console(file=io.StringIO(), width=200)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    settings = config.override(
        data_dir=make_data(tmp_path / "data"),
        model_name=str(tmp_path / "base"),
        max_steps=2,
        logging_steps=1,
        step_budget=3,
        max_new_tokens=6,
    )
    options = JobOptions("offline", tmp_path / "runs", eval_limit=6, eval_points=2)
    run_job(settings, options, GrpoJob, console=console)
    latest, out = tmp_path / "runs" / "latest", tmp_path / "shipped"
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
