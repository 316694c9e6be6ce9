"""What the benchmark of trainer processes reads off runs: seconds a step, and what two runs have in
common."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.trainer_processes import compared, timing
from shared.run_files import RunFiles

STEPS = [
    {
        "step": 1,
        "success": 0.25,
        "loss": 0.5,
        "rollout_s": 9.0,
        "generate_s": 8.0,
        "update_s": 9.0,
        "cpu_s": 30.0,
    },
    {
        "step": 2,
        "success": 0.5,
        "loss": 0.4,
        "rollout_s": 2.0,
        "generate_s": 1.0,
        "update_s": 4.0,
        "cpu_s": 34.0,
    },
    {
        "step": 3,
        "success": 0.5,
        "loss": 0.0,
        "rollout_s": 4.0,
        "generate_s": 3.0,
        "update_s": 6.0,
        "cpu_s": 44.0,
    },
]
POINT = {"step": 0, "eval_n": 4, "eval_s": 1.0}


def make_run(
    folder: Path, rows: list[dict[str, Any]], episodes: list[dict[str, Any]], weight: float
) -> RunFiles:
    (folder / "model").mkdir(parents=True)
    run = RunFiles(folder)
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in [POINT, *rows]))
    run.episodes.write_text("".join(json.dumps(line) + "\n" for line in episodes))
    save_file({"w": torch.tensor([1.0, weight])}, folder / "model" / "model.safetensors")
    return run


def episode(phase: str, step: int, *actions: str) -> dict[str, Any]:
    return {
        "phase": phase,
        "mode": "sampled",
        "step": step,
        "question_id": "q",
        "actions": list(actions),
    }


def test_seconds_leave_the_first_step_out_and_cpu_is_a_difference() -> None:
    found = timing([POINT, *STEPS])
    assert found["step_s"] == 8.0
    assert (found["rollout_s"], found["generate_s"], found["update_s"]) == (3.0, 2.0, 5.0)
    assert found["cpu_s"] == 7.0
    assert found["rank_wait_s"] == 0.0  # a single process waits for nobody
    assert found["first_s"] == 18.0


def test_what_differs_is_told_by_part_metric_and_step(tmp_path: Path) -> None:
    lines = [
        episode("before", 0, "a"),
        episode("train", 1, "b"),
        episode("train", 1, "c"),
        episode("after", 3, "d"),
    ]
    changed = [*lines[:2], episode("train", 1, "c", "e"), lines[3]]
    rows = [STEPS[0], STEPS[1] | {"loss": 0.5, "rollout_s": 3.0}, STEPS[2]]
    ours, theirs = (
        make_run(tmp_path / "a", STEPS, lines, 1.0),
        make_run(tmp_path / "b", rows, changed, 1.25),
    )
    found = compared(ours, theirs)
    assert found["episodes"] == {
        "before (sampled)": "1/1",
        "step 1": "1/2",
        "after (sampled)": "1/1",
    }
    # seconds are no result
    assert found["metrics_that_differ"] == {"loss": {"2": pytest.approx(0.2)}}
    assert found["metrics_equal"] == ["step", "success"]
    assert found["weights_max_difference"] == 0.25
    assert compared(ours, ours)["metrics_that_differ"] == {}


def test_runs_of_different_length_are_not_compared(tmp_path: Path) -> None:
    ours, theirs = (
        make_run(tmp_path / "a", STEPS, [], 1.0),
        make_run(tmp_path / "b", STEPS[:2], [], 1.0),
    )
    with pytest.raises(ValueError, match="shorter"):
        compared(ours, theirs)
