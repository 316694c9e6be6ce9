"""The controls of a small run, and the model that ships after it."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from benchmarks.learning.controls import CONTROLS, run_controls
from benchmarks.learning.publish import write_published
from benchmarks.learning.report import as_json, page
from tests.trainer import conftest as training
from tests.trainer.small_data import make_data
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions
from trainer.grpo.job import run_job

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures


def test_controls_and_the_shipped_model_of_a_small_run(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Run a training job, all its controls and `publish` on a real server, with a random model."""
    for name in ("base", "expert"):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    settings = config.override(
        data_dir=make_data(tmp_path / "data"),
        model_name=str(tmp_path / "base"),
        max_steps=2,
        logging_steps=1,
        step_budget=3,
        max_new_tokens=6,
    )
    console = Console(file=io.StringIO(), width=200)
    run_job(
        settings,
        JobOptions("offline", tmp_path / "runs", eval_limit=6, eval_points=2),
        console=console,
    )
    latest = tmp_path / "runs" / "latest"
    check_controls(latest, tmp_path / "expert", console)
    check_published(latest, tmp_path / "shipped", console)


def check_controls(latest: Path, expert: Path, console: Console) -> None:
    found = run_controls(latest, expert, console=console, rates=(1e-3,))
    assert [line.key for line in found.lines] == [
        "random",
        "before",
        "pass_at_8",
        "vote_of_8",
        "expert",
        "shuffled",
        "sft",
        "grpo",
    ]
    assert {line.modes["sampled"]["overall"]["n"] for line in found.lines} == {6}
    # the expert here is the start itself: same questions, prompts and random streams give the same
    # episodes
    assert (
        found.modes("expert")["sampled"]["outcomes"] == found.modes("before")["sampled"]["outcomes"]
    )
    kept_files = {
        path.stem: path.stat().st_mtime_ns for path in (latest / "controls").glob("*.json")
    }
    assert set(kept_files) == set(CONTROLS)
    again = run_controls(latest, expert, console=console, rates=(1e-3,))
    assert as_json(again, "c") == json.loads(json.dumps(as_json(found, "c")))
    assert {
        path.stem: path.stat().st_mtime_ns for path in (latest / "controls").glob("*.json")
    } == kept_files
    assert page(again, "c").count("\n|") == 10


def check_published(latest: Path, out: Path, console: Console) -> None:
    """The weights are the run's, rounded to bfloat16, and the card has the measurements."""
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
