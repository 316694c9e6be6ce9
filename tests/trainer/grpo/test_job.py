"""The whole job with a random tiny model, against a fake server and a real one."""

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from env_server.audit.verify import verify_run
from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import begin, check_costs, check_summary, latest
from trainer.__main__ import app
from trainer.config.settings import GRPOConfig
from trainer.run.folder import Run, read_json, read_lines
from trainer.run.inputs import JobOptions, load_inputs


def test_a_run_leaves_what_it_promises(small, tmp_path):
    summary = begin(small, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert json.loads(run.summary.read_text()) == json.loads(json.dumps(summary))
    check_summary(summary, run, steps=3, questions=12)
    assert json.loads(run.summary.read_text())["config"] == read_json(run.config)["config"]

    lines = list(read_lines(run.episodes))
    phases = {(line["phase"], line["mode"], line["step"]) for line in lines}
    assert {("random", "sampled", 0), ("before", "greedy", 0), ("after", "sampled", 3)} <= phases
    assert {step for phase, _, step in phases if phase == "train"} == {1, 2, 3}
    assert {step for phase, _, step in phases if phase == "eval"} == {1, 2}
    assert all(line["actions"] and line["outcome"] and line["reward"] is not None for line in lines)
    assert not any("gold" in key for line in lines for key in line)

    metrics = list(read_lines(run.metrics))
    steps = [row for row in metrics if "success" in row]
    assert [row["step"] for row in steps] == [1, 2, 3]
    points = [row for row in metrics if "eval_greedy_success" in row]
    assert [row["step"] for row in points] == [0, 1, 2, 3]
    check_costs(summary, steps, points)

    assert run.curve.read_bytes().startswith(b"\x89PNG")
    page = run.transcripts.read_text()
    assert "| random | before | after |" in page
    shown = (tmp_path / "out.txt").read_text()
    for said in ("learning_curve.png", "What changed in behaviour"):
        assert said in shown


@pytest.mark.usefixtures("blank_charts")
def test_a_log_shows_how_far_a_step_is(small, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.run.progress.LINE_EVERY_S", 0.0)
    begin(small, tmp_path, FakeClient()).run()
    shown = (tmp_path / "out.txt").read_text()
    first, last = shown.index("before (greedy): 0/12,"), shown.index("before (greedy): 12/12,")
    assert "tokens read" in shown[first:last]
    grpo = [line for line in shown.splitlines() if line.startswith("GRPO: ")]
    played = r"GRPO: 1/3, .* left, step 2, play: [0-8]/8 episodes, \d+ turns, [\d,]+ tokens read, "
    assert any(re.match(played, line) for line in grpo)
    assert any("step 2, update: micro-batch 1 of " in line for line in grpo)
    assert grpo[-1].startswith("GRPO: 3/3, reward ")


@pytest.mark.usefixtures("blank_charts")
def test_a_run_whose_groups_all_have_one_verdict_says_that_it_learned_nothing(small, tmp_path):
    found = {}
    for skip in (True, False):
        out = tmp_path / str(skip)
        begin(replace(small, skip_one_verdict_groups=skip), out, FakeClient()).run()
        rows = [one for one in read_lines(latest(out).metrics) if "one_verdict_groups" in one]
        assert {one["one_verdict_groups"] for one in rows} == {1}
        assert {one["grad_norm"] == 0 for one in rows} == {skip}
        found[skip] = (out / "out.txt").read_text()
    assert "nothing to learn: all groups have one verdict" in found[True]
    assert "WARM_START=300" in found[True]
    assert "nothing" not in found[False]


@pytest.mark.usefixtures("blank_charts")
def test_lost_episodes_are_counted_and_never_measured(small, tmp_path):
    client = FakeClient(failing={"eval-shop-0": 2})
    summary = begin(replace(small, max_lost_fraction=0.5), tmp_path, client).run()
    greedy = summary["eval_success_before"]["greedy"]
    assert greedy["overall"]["n"] == 11  # 12 questions, one lost
    lost = [
        line for line in read_lines(latest(tmp_path).episodes) if line["outcome"] == "infra_failed"
    ]
    assert summary["episodes_lost"] == len(lost) > 0
    assert all(line["reward"] is None for line in lost)


ROOT = Path(__file__).parents[3]


def start(*command: str) -> "subprocess.Popen[str]":
    """Run `python -m ...` in its own process, from another folder."""
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def arguments(small: GRPOConfig, tmp_path: Path, data_dir: Path, steps: int) -> list[str]:
    settings = {
        "max_new_tokens": 6,
        "step_budget": 3,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 8,
        "learning_rate": 1e-3,
        "updates_per_batch": small.updates_per_batch,
        "skip_one_verdict_groups": False,  # this model is always wrong
    }
    return [
        *("--model", small.model_name, "--data", str(data_dir), "--out", str(tmp_path / "runs")),
        *("--steps", str(steps), "--seed", "7", "--eval-every", "1", "--eval-points", "3"),
        *(text for key, value in settings.items() for text in ("--set", f"{key}={value}")),
    ]


def check_audit(run: Run) -> None:
    report = asyncio.run(verify_run(run.path))
    assert report.problems == []
    assert report.notes == []
    lines = list(read_lines(run.episodes))
    assert report.episodes == len(lines)
    observations = sum(one["observations"] for one in report.phases.values())
    assert observations == sum(line["steps"] + 1 for line in lines)
    assert report.metrics_rows == len(list(read_lines(run.metrics)))


def command(small: GRPOConfig, tmp_path: Path, data_dir: Path) -> tuple[Run, str]:
    """Train by the command line; return the run and what was printed."""
    job = arguments(small, tmp_path, data_dir, 2)
    process = start("trainer", "train", *job, "--standard", "spider")
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    return latest(tmp_path), output


def test_the_command_runs_over_http_to_the_end(small, tmp_path, data_dir):
    run, output = command(small, tmp_path, data_dir)
    summary = read_json(run.summary)
    check_summary(summary, run, steps=2, questions=12)
    assert summary["standard"] == read_json(run.config)["config"]["standard"] == "spider"
    assert "standard <code>spider</code>" in run.report.read_text()
    assert summary["seed"] == 7
    assert summary["digests"]["data"] == load_inputs(small, JobOptions()).data_digest
    assert "after greedy" in output
    # a short run's server may not have used one clock tick
    assert summary["cost"]["server_cpu_s"] >= 0.0
    assert summary["cost"]["server_cpu_s_per_episode"] is not None
    url = read_json(run.config)["config"]["server_urls"][0]
    assert "serves" in run.server_log.read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")

    check_audit(run)

    # a finished run has nothing left to do, and loses nothing by being asked
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    asked = CliRunner().invoke(app, ["train", "--resume", str(run.path)])
    assert asked.exit_code == 0, asked.output
    assert "is finished" in asked.output
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_saved_model_is_the_measured_one_with_its_lengths_and_step_budget(
    small, tmp_path, data_dir
):
    run, _ = command(small, tmp_path, data_dir)
    measured = read_json(run.summary)["eval_success_after"]
    options = ["--model", str(run.model), "--data", str(data_dir)]
    for mode in ("greedy", "sampled"):
        out = tmp_path / mode
        greedy = ["--greedy"] if mode == "greedy" else []
        found = CliRunner().invoke(
            app, ["evaluate", *options, "--standard", "spider", *greedy, "--out", str(out)]
        )
        assert found.exit_code == 0, found.output
        again = read_json(out / "evaluation.json")
        for part, rate in measured[mode].items():
            assert again["success"][part]["success"] == rate
        assert again["standard"] == "spider"

        def actions(path: Path, phase: str, mode: str = mode) -> set[tuple[str, ...]]:
            lines = (
                one for one in read_lines(path) if (one["phase"], one["mode"]) == (phase, mode)
            )
            return {(one["question_id"], *one["actions"]) for one in lines}

        assert actions(out / "episodes.jsonl", "eval") == actions(run.episodes, "after")
        assert len(actions(run.episodes, "after")) == 12
