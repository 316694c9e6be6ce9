"""The whole job in several processes, as `accelerate launch` and `--processes` start them, over a
real server."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tests.trainer.grpo.test_job import ROOT, arguments, check_audit, start
from tests.trainer.small_job import check_summary, latest
from trainer.__main__ import app
from trainer.run.folder import Run, checkpoint_step, read_json, read_lines
from trainer.runtime.server import SupervisedServer

pytestmark = [pytest.mark.usefixtures("blank_charts"), pytest.mark.timeout(900)]

FILES = ROOT / "trainer" / "runtime" / "accelerate"
TIMEOUT_S = 400


def launched(file: str, *options: str, job: list[str]) -> "subprocess.Popen[str]":
    """Start `accelerate launch` as a user would."""
    configured = ("--config_file", str(FILES / file), *options)
    return start("accelerate.commands.launch", *configured, "-m", "trainer", "train", *job)


def alone(job: list[str]) -> None:
    played = CliRunner().invoke(app, ["train", *job])
    assert played.exit_code == 0, played.output


def check_same(run: Run, other: Run) -> None:
    """Check that two runs played the same episodes, those of training in the same order, and
    trained the same, up to rounding."""
    played, others = (one.episodes.read_bytes().splitlines() for one in (run, other))
    assert sorted(played) == sorted(others)  # each process writes its share of a measurement
    trained = [[line for line in one if b'"phase": "train"' in line] for one in (played, others)]
    assert trained[0] == trained[1] != []
    weights, others = (load_file(one.model / "model.safetensors") for one in (run, other))
    for name, value in weights.items():
        torch.testing.assert_close(value, others[name], atol=1e-5, rtol=0)
    counts = ("step", "episodes", "eval_n", "success")
    names = (*counts, "reward", "reward_operational", "loss", "grad_norm")
    curves = []
    for one in (run, other):  # a resumed run measures the step that it was stopped after later
        lines = sorted(read_lines(one.metrics), key=lambda row: ("eval_n" in row, row["step"]))
        curves.append([{name: row[name] for name in names if name in row} for row in lines])
    assert len(curves[0]) == len(curves[1]) > 0
    for row, theirs in zip(*curves, strict=True):
        assert row == pytest.approx(theirs, rel=1e-3, abs=1e-6)


@pytest.mark.slow
def test_two_processes_train_to_the_end_and_as_one_does(small, tmp_path, data_dir):
    """Each process plays its own episodes; the gradients of a step's two updates go over gloo, and
    the run's folder passes the audit."""
    small = small.override(updates_per_batch=2)
    (tmp_path / "two").mkdir()
    (tmp_path / "one").mkdir()
    two = ("--num_processes", "2")
    process = launched("gpus.yaml", *two, job=arguments(small, tmp_path / "two", data_dir, 2))
    alone(arguments(small, tmp_path / "one", data_dir, 2))
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, output
    run, single = latest(tmp_path / "two"), latest(tmp_path / "one")
    summary = read_json(run.summary)
    check_summary(summary, run, steps=2, questions=12)
    assert summary["processes"] == 2
    assert output.count("after (sampled): 12/12") == 1  # only one process prints
    assert sorted(path.name for path in run.path.parent.iterdir()) == sorted([run.id, "latest"])
    steps = [row for row in read_lines(run.metrics) if "success" in row]
    assert [row["episodes"] for row in steps] == [32, 32]
    assert summary["rank_wait_s"] == pytest.approx(
        sum(row["rank_wait_s"] for row in steps), abs=1e-3
    )
    assert 0 < summary["rank_wait_s"] < summary["rollout_s"]
    names = {path.name for path in (run.checkpoints / "checkpoint-2").iterdir()}
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= names
    check_audit(run)
    check_same(run, single)


def until(process: "subprocess.Popen[str]", run: Path, steps: int = 1) -> None:
    deadline = time.monotonic() + 200
    while process.poll() is None and time.monotonic() < deadline:
        if sum("success" in row for row in read_lines(run / "metrics.jsonl")) >= steps:
            return
        time.sleep(0.05)


def trainers(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    """Return the launcher's processes by rank."""
    found = [one for one in psutil.Process(process.pid).children() if "RANK" in one.environ()]
    return sorted(found, key=lambda one: int(one.environ()["RANK"]))


@pytest.fixture(scope="module")
def whole() -> dict[int, list[str]]:
    """The episodes of uninterrupted runs, by number of steps; a test adds what is missing."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "sent", "rank", "code", "said", "resumed_by"),
    [
        (2, signal.SIGINT, None, 130, "--resume", None),
        (1, signal.SIGTERM, None, 130, "--resume", 2),
        (2, signal.SIGTERM, 1, 130, "--resume", 1),
        (2, signal.SIGKILL, 1, 137, "process 1 of 2 was ended by SIGKILL", 1),
        # the one that writes the checkpoints and started the server
        (2, signal.SIGKILL, 0, 137, "process 0 of 2 was ended by SIGKILL", 2),
    ],
)
def test_a_run_that_is_stopped_or_loses_a_process_goes_on(
    small, tmp_path, data_dir, whole, processes, sent, rank, code, said, resumed_by
):
    """One process, or the launcher without a rank, gets a signal, and all end; resuming from the
    last checkpoint gives the uninterrupted result.

    That is of the last whole step, unless the process that writes it is the one that was killed.
    Without `resumed_by` the run keeps its number of processes.
    """
    every = ["--set", f"save_steps={1 if rank == 0 else 1000}", "--processes", str(processes)]
    process = start("trainer", "train", *arguments(small, tmp_path, data_dir, 400), *every)
    until(process, tmp_path / "runs" / "latest", steps=2)
    ranks = trainers(process)
    assert len(ranks) == (processes if processes > 1 else 0)
    (process if rank is None else ranks[rank]).send_signal(sent)
    output, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, output
    assert said in output
    assert "Traceback" not in output
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in ranks)
    run = latest(tmp_path)
    check_no_server(run)
    checkpoint = run.last_checkpoint()
    steps = checkpoint_step(checkpoint) + 1
    again = ("--processes", str(resumed_by)) if resumed_by else ()
    resumed = start("trainer", "train", "--resume", str(run.path), "--steps", str(steps), *again)
    output, _ = resumed.communicate(timeout=TIMEOUT_S)
    assert resumed.returncode == 0, output
    assert "before (greedy)" not in output  # kept, not measured again
    summary = read_json(run.summary)
    assert (summary["train_steps"], summary["processes"]) == (steps, resumed_by or processes)
    check_audit(run)
    if steps not in whole:
        (tmp_path / "whole").mkdir()
        alone(arguments(small, tmp_path / "whole", data_dir, steps))
        whole[steps] = sorted(latest(tmp_path / "whole").episodes.read_text().splitlines())
    assert sorted(run.episodes.read_text().splitlines()) == whole[steps]


def check_no_server(run: Run) -> None:
    """The server that the run started ends, even if its trainer was killed."""
    url, deadline = read_json(run.config)["config"]["server_urls"][0], time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/health")
        except httpx.ConnectError:
            return
        except httpx.TransportError:
            pass  # it is shutting down
        time.sleep(0.1)
    pytest.fail(f"a server still answers at {url}")


@pytest.mark.slow
def test_machines_share_a_run_and_a_server_that_all_reach(small, tmp_path, data_dir):
    """Start two launchers, as on two machines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def machines(*more: str) -> list[tuple[int, str]]:
        job = [*arguments(small, tmp_path, data_dir, 2), *more]
        options = ("--num_processes", "2", "--main_process_port", str(port), "--machine_rank")
        started = [launched("machines.yaml", *options, str(rank), job=job) for rank in (0, 1)]
        said = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
        return [(process.returncode, output) for process, output in zip(started, said, strict=True)]

    ended = machines()
    assert [code for code, _ in ended] == [1, 1]
    assert "python -m env_server --host 0.0.0.0" in ended[0][1]  # printed by the first machine
    assert not (tmp_path / "runs").exists()

    with SupervisedServer(data_dir, tmp_path / "server.log") as server:
        ended = machines("--server", server.url)
    assert [code for code, _ in ended] == [0, 0], ended
    run = latest(tmp_path)
    check_summary(read_json(run.summary), run, steps=2, questions=12)
    check_audit(run)
