"""The whole job, with a random tiny model: against a server that is a Python object, and against a real one."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from shared.models import ServerMetadata
from tests.training.conftest import FakeClient
from tests.training.small_data import TRAIN_DATABASES, make_data
from trainer.__main__ import app
from trainer.config import GRPOConfig
from trainer.errors import RolloutError, RunError
from trainer.inputs import JobOptions, check_resumed_data, load_inputs, resumed_settings, save_settings
from trainer.interrupt import Interrupted, Interrupts
from trainer.job import Job
from trainer.measure import Connection
from trainer.runs import Run, create_run, open_run, point_latest, read_json, read_lines


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.fixture
def small(config: GRPOConfig, data_dir: Path, tmp_path: Path, model: Any, tokenizer: Any) -> GRPOConfig:
    """Settings of a run of seconds, with the tiny model saved where they name it."""
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return config.override(
        data_dir=data_dir,
        model_name=str(tmp_path / "base"),
        max_steps=3,
        logging_steps=1,
        learning_rate=1e-3,
        step_budget=3,
        max_new_tokens=6,
    )


def begin(config: GRPOConfig, tmp_path: Path, client: FakeClient, *, resume: Run | None = None, **options: Any) -> Job:
    """A job over the fake server, as `run_job` makes it."""
    settings = JobOptions("offline", tmp_path / "runs", eval_every=1, eval_points=4, **options)
    run = resume or create_run(settings.out, "test")
    inputs = load_inputs(config, settings)
    save_settings(run, config, settings, inputs)
    point_latest(run)
    metadata = ServerMetadata(
        name="fake",
        description="",
        version="0",
        reward_version="fake",
        sqlite_version="3.99",
        digest="server-digest",
        data_digest=inputs.data_digest,
        questions={},
        databases=3,
        step_budget=3,
        capacity=1,
    )
    console = Console(file=(tmp_path / "out.txt").open("a"), width=200)
    return Job(run, Connection(config, client, metadata), settings, inputs, console, Interrupts())


class StoppingClient(FakeClient):
    """Raises `error` on the way into the given reset_many call (1 is the first)."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__()
        self.at, self.error_raised = at, error
        self.resets = 0

    def reset_many(self, requests: Any) -> Any:
        self.resets += 1
        if self.resets == self.at:
            raise self.error_raised
        return super().reset_many(requests)


def latest(tmp_path: Path) -> Run:
    return open_run(tmp_path / "runs" / "latest")


def test_a_run_leaves_what_it_promises(small: GRPOConfig, tmp_path: Path) -> None:
    summary = begin(small, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert json.loads(run.summary.read_text()) == json.loads(json.dumps(summary))
    check_summary(summary, run, steps=3, questions=12)

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
    for row in steps:
        assert {
            "loss",
            "reward",
            "reward_std",
            "entropy",
            "grad_norm",
            "learning_rate",
            "rewards/reward_correctness/mean",
        } <= (row.keys())
    assert [row["step"] for row in metrics if "eval_greedy_success" in row] == [0, 1, 2, 3]

    assert run.curve.read_bytes().startswith(b"\x89PNG")
    page = run.transcripts.read_text()
    assert "| random | before | after |" in page
    shown = (tmp_path / "out.txt").read_text()
    assert "random" in shown
    assert "learning_curve.png" in shown


def check_summary(summary: dict[str, Any], run: Run, *, steps: int, questions: int) -> None:
    """The fields that a run promises, and that they agree with its files."""
    for phase, modes in (("random", ["sampled"]), ("before", ["greedy", "sampled"]), ("after", ["greedy", "sampled"])):
        found = summary[f"eval_success_{phase}"]
        assert list(found) == modes
        for parts in found.values():
            assert list(parts) == ["overall", "seen", "unseen"]
            assert parts["overall"]["n"] == questions
            assert parts["seen"]["n"] + parts["unseen"]["n"] == questions
            assert parts["unseen"]["n"] > 0
            for rate in parts.values():
                assert set(rate) == {"rate", "n", "ci95"}
                assert 0 <= rate["ci95"][0] <= rate["rate"] <= rate["ci95"][1] <= 1
    lines = list(read_lines(run.episodes))
    assert summary["train_steps"] == steps
    assert summary["episodes"] == len(lines)
    assert summary["episodes_lost"] == 0
    assert summary["parse_failures"] == sum(line["parse_failures"] for line in lines)
    assert summary["env_errors"] == sum(line["env_errors"] for line in lines)
    assert summary["rollout_s"] >= summary["generate_s"] + summary["env_wait_s"] > 0
    assert summary["wall_s"] >= summary["rollout_s"] + summary["update_s"] > summary["rollout_s"]
    assert {"python", "torch", "transformers", "trl", "sqlite"} <= summary["versions"].keys()
    assert {"data", "server", "model"} <= summary["digests"].keys()
    assert summary["digests"]["trained_model"] != summary["digests"]["model"]
    assert isinstance(summary["seed"], int)
    unseen = {line["database"] for line in lines if line["part"] == "unseen"}
    assert unseen
    assert not unseen & set(TRAIN_DATABASES)


def comparable(run: Run) -> dict[str, Any]:
    """What an interruption must not change: every count, rate, digest and row, seconds aside."""
    summary = read_json(run.summary)
    timed = ("_s", "step_time", "train_runtime", "per_second", "flos")
    rows = [
        {key: value for key, value in row.items() if not key.endswith(timed)}
        for row in read_lines(run.metrics)
        if "train_runtime" not in row
    ]
    episodes = sorted(json.dumps(line, sort_keys=True) for line in read_lines(run.episodes))
    return {
        "rates": {key: value for key, value in summary.items() if key.startswith("eval_success")},
        "counts": {key: summary[key] for key in ("episodes", "parse_failures", "env_errors", "train_steps")},
        "digests": summary["digests"],
        "rows": sorted(rows, key=lambda row: (row["step"], "eval_n" in row)),
        "episodes": episodes,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Filled by the first test that needs it: the same run, never stopped."""
    return {}


def uninterrupted(small: GRPOConfig, tmp_path: Path, whole: dict[str, Any]) -> dict[str, Any]:
    if not whole:
        begin(small, tmp_path / "whole", FakeClient()).run()
        whole |= comparable(latest(tmp_path / "whole"))
    return whole


# reset_many calls of this run: 1 random, 2 and 3 before, 4 to 10 training with its small evals, 11 and 12 after
@pytest.mark.parametrize(
    "at",
    [3, 6, 7, 12, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2, 4, 5, 8, 9, 10, 11))],
)
def test_a_stopped_run_goes_on_to_the_same_result(
    small: GRPOConfig, tmp_path: Path, whole: dict[str, Any], at: int
) -> None:
    with pytest.raises(Interrupted):
        begin(small, tmp_path, StoppingClient(at, Interrupted())).run()
    run = latest(tmp_path)
    assert not run.summary.exists()
    config, _ = resumed_settings(run, (), {})
    assert config == small
    client = StoppingClient(0, Interrupted())
    begin(config, tmp_path, client, resume=open_run(tmp_path / "runs" / "latest")).run()
    assert comparable(run) == uninterrupted(small, tmp_path, whole)
    assert client.resets < 12 or at == 1  # what was measured before is read back
    assert read_json(run.summary)["sessions"] == 2


def test_lost_servers_stop_the_run_with_a_checkpoint(small: GRPOConfig, tmp_path: Path, whole: dict[str, Any]) -> None:
    error = RolloutError("8 of 8 episodes were lost to infrastructure")
    with pytest.raises(RolloutError, match="lost to infrastructure"):
        begin(small, tmp_path, StoppingClient(6, error)).run()
    run = latest(tmp_path)
    checkpoint = run.last_checkpoint()
    assert checkpoint is not None
    assert checkpoint.name == "checkpoint-1"
    begin(small, tmp_path, FakeClient(), resume=run).run()
    assert comparable(run) == uninterrupted(small, tmp_path, whole)


def test_lost_episodes_are_counted_and_never_measured(small: GRPOConfig, tmp_path: Path) -> None:
    client = FakeClient(failing={"eval-shop-0": 2})
    summary = begin(replace(small, max_lost_fraction=0.5), tmp_path, client).run()
    greedy = summary["eval_success_before"]["greedy"]
    assert greedy["overall"]["n"] == 11  # 12 questions, one lost
    lost = [line for line in read_lines(latest(tmp_path).episodes) if line["outcome"] == "infra_failed"]
    assert summary["episodes_lost"] == len(lost) > 0
    assert all(line["reward"] is None for line in lost)


def test_more_steps_may_follow(small: GRPOConfig, tmp_path: Path) -> None:
    begin(replace(small, max_steps=2), tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    config, _ = resumed_settings(run, (), {"max_steps": "4"})
    assert begin(config, tmp_path, FakeClient(), resume=run).run()["train_steps"] == 4
    steps = [line["step"] for line in read_lines(run.metrics) if "success" in line]
    assert steps == [1, 2, 3, 4]


def test_a_resumed_run_keeps_its_settings_and_its_data(small: GRPOConfig, tmp_path: Path, data_dir: Path) -> None:
    begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    with pytest.raises(RunError, match="seed can't change"):
        resumed_settings(run, (), {"seed": "3"})
    path = data_dir / "questions" / "questions_eval.json"
    path.write_text(path.read_text().replace("How many", "Count the"))
    config, options = resumed_settings(run, (), {})
    with pytest.raises(RunError, match="has changed since"):
        check_resumed_data(run, load_inputs(config, options), config)


def test_eval_limit_keeps_every_database(small: GRPOConfig, tmp_path: Path) -> None:
    summary = begin(small, tmp_path, FakeClient(), eval_limit=6).run()
    rates = summary["eval_success_after"]["greedy"]
    assert (rates["overall"]["n"], rates["seen"]["n"], rates["unseen"]["n"]) == (6, 4, 2)


ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> "subprocess.Popen[str]":
    """`python -m trainer train ...` as its own process, from another folder than the sources'."""
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", "train", *arguments],
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
        "learning_rate": 1e-3,
    }
    return [
        *("--model", small.model_name, "--data", str(data_dir), "--out", str(tmp_path / "runs")),
        *("--steps", str(steps), "--seed", "7", "--eval-every", "1", "--eval-points", "3"),
        *(text for key, value in settings.items() for text in ("--set", f"{key}={value}")),
    ]


def test_the_command_runs_over_http_to_the_end(small: GRPOConfig, tmp_path: Path, data_dir: Path) -> None:
    process = command(*arguments(small, tmp_path, data_dir, 2))
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    run = latest(tmp_path)
    summary = read_json(run.summary)
    check_summary(summary, run, steps=2, questions=12)
    assert summary["seed"] == 7
    assert summary["digests"]["data"] == load_inputs(small, JobOptions()).data_digest
    assert "after greedy" in output
    url = read_json(run.config)["config"]["server_urls"][0]
    assert "serves" in run.server_log.read_text()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")

    # a finished run has nothing left to do, and loses nothing by being asked
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    asked = CliRunner().invoke(app, ["train", "--resume", str(run.path)])
    assert asked.exit_code == 0, asked.output
    assert "is finished" in asked.output
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}

    # the model that was saved is the model that was measured
    options = ["--model", str(run.model), "--data", str(data_dir), "--out", str(tmp_path / "again.json")]
    settings = ["--set", "max_new_tokens=6", "--set", "step_budget=3"]
    found = CliRunner().invoke(app, ["evaluate", *options, *settings])
    assert found.exit_code == 0, found.output
    again = read_json(tmp_path / "again.json")
    for mode, parts in summary["eval_success_after"].items():
        assert {part: again["success"][mode][part] for part in parts} == parts

    def actions(lines: Any, phase: str) -> set[tuple[str, ...]]:
        return {(one["mode"], one["question_id"], *one["actions"]) for one in lines if one["phase"] == phase}

    assert actions(again["episodes"], "eval") == actions(read_lines(run.episodes), "after")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_stops_the_server(
    small: GRPOConfig, tmp_path: Path, data_dir: Path, number: signal.Signals
) -> None:
    process = command(*arguments(small, tmp_path, data_dir, 400))
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if any("success" in row for row in read_lines(tmp_path / "runs" / "latest" / "metrics.jsonl")):
            break
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "--resume" in output
    assert "Traceback" not in output
    run = latest(tmp_path)
    assert run.last_checkpoint() is not None
    url = read_json(run.config)["config"]["server_urls"][0]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    steps = max(row["step"] for row in read_lines(run.metrics)) + 1
    resumed = command("--resume", str(run.path), "--steps", str(steps))
    output, _ = resumed.communicate(timeout=200)
    assert resumed.returncode == 0, output
    assert read_json(run.summary)["train_steps"] == steps
    assert "before (greedy)" not in output  # kept, not measured again
