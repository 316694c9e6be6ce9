"""The controls of a small run, and the model that ships after it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from benchmarks.learning import forms
from benchmarks.learning.controls import run_controls
from benchmarks.learning.publish import write_published
from benchmarks.learning.report import as_json, page
from tests.benchmarks.finished_run import finished_run
from tests.trainer import conftest as training
from trainer.config import GRPOConfig
from trainer.report.tables import CONTROLS
from trainer.run.folder import read_json

model, tokenizer, config = training.model, training.tokenizer, training.config  # fixtures


@pytest.mark.slow
def test_controls_and_the_shipped_model_of_a_small_run(
    config: GRPOConfig, model: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Run a training job, all its controls and `publish` on a real server, with a random model."""
    console = Console(file=io.StringIO(), width=200)
    latest = finished_run(config, model, tokenizer, tmp_path, 2, console)
    check_controls(latest, console)
    check_forms(latest, console)
    check_published(latest, tmp_path / "shipped", console)


def check_controls(latest: Path, console: Console) -> None:
    # as two commands of different controls would, each with its own server
    for names in (["imitation", "sft"], ["best_of_8", "shuffled"]):
        run_controls(latest, names, console=console, rates=(1e-3,))
    folder = latest / "controls"
    kept_files = {path.stem: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert set(kept_files) == set(CONTROLS)
    found = run_controls(latest, console=console, rates=(1e-3,))
    assert [line.key for line in found.lines] == [
        "random",
        "before",
        "pass_at_8",
        "vote_of_8",
        "imitation",
        "shuffled",
        "sft",
        "grpo",
    ]
    assert {line.modes["sampled"]["overall"]["n"] for line in found.lines} == {6}
    seconds = {line.key: line.seconds for line in found.lines}
    budget = read_json(latest / "summary.json")["cost"]["cpu_s"]
    assert seconds["grpo"] == pytest.approx(budget, abs=1e-3)
    assert min(seconds["imitation"] or 0, seconds["sft"] or 0) >= budget
    assert found.notes["imitation"]["databases"] == 3  # of 80 questions, for 12 x 2 x 8
    assert found.notes["imitation"]["epochs"] > 0
    again = run_controls(latest, console=console, rates=(1e-3,))
    assert as_json(again, "c") == json.loads(json.dumps(as_json(found, "c")))
    assert kept_files == {path.stem: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert not list(folder.glob("*.log"))
    assert page(again, "c").count("\n|") == 10


def check_forms(latest: Path, console: Console) -> None:
    found = forms.run_forms(latest, console)
    assert [(one.name, one.difficulty, one.n) for one in found.forms] == [
        ("count_compare", "easy", 3),
        ("count_compare", "medium", 3),
    ]
    assert [(one.name, one.n) for one in found.sets] == [
        ("all forms", 6),
        ("held-out pairs", 0),
        ("hard", 6),
    ]
    assert {rate["n"] for modes in found.sets[2].rates.values() for rate in modes.values()} == {6}
    files = {path: path.stat().st_mtime_ns for path in (latest / "forms").glob("*.json")}
    assert {path.stem for path in files} == {"before", "after"}
    assert forms.page(forms.run_forms(latest, console), "c") == forms.page(found, "c")
    assert files == {path: path.stat().st_mtime_ns for path in files}


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
