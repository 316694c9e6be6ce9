"""examples/slurm.sbatch with stand-ins for Slurm's commands, which run it on this machine."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "scontrol": '[ "$1" = show ] && tr , "\\n" <<<"$3" || echo "$@" >>"$CALLS"',
}
# a python that only records how it is called; the trainer ends when `finish` exists
RECORDING = """
[ "$1" = -c ] && echo secret && exit
[ "$2" = env_server ] || trap 'sleep 0.3; echo checkpoint >>"$CALLS"; exit 143' TERM
echo "$@" >>"$CALLS"
[ "$2" = env_server ] && exec sleep 600
while [ ! -e "${CALLS%/*}/finish" ]; do sleep 0.05; done
"""


class Cluster:
    """Runs the script as Slurm's batch step does."""

    def __init__(self, folder: Path, nodes: str, gpus: int, **environment: str) -> None:
        self.folder, self.calls = folder, folder / "calls"
        bin_ = folder / "bin"
        bin_.mkdir()
        for name, text in COMMANDS.items():
            self.program(bin_ / name, text)
        self.environment = os.environ | {
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "SLURM_JOB_ID": "1234",
            "SLURM_JOB_NODELIST": nodes,
            "SLURM_JOB_NUM_NODES": str(len(nodes.split(","))),
            "SLURM_GPUS_ON_NODE": str(gpus),
            "RUNS": str(folder / "runs"),
        }
        self.environment |= environment

    def program(self, path: Path, text: str) -> str:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", str(ROOT / "examples" / "slurm.sbatch"), *options],
            env=self.environment,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def lines(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path, "node7,node8", gpus=8)
    found.environment["PYTHON"] = found.program(tmp_path / "python", RECORDING)
    return found


def wait_for(true: Callable[[], bool], job: "subprocess.Popen[str]") -> None:
    for _ in range(6000):
        if true():
            return
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.05)
    pytest.fail("not within 5 minutes")


def test_servers_are_on_the_first_node_and_a_launcher_on_each(cluster):
    job = cluster.start("--preset", "qwen3-8b", "--set", "report_to=a b")
    wait_for(lambda: len(cluster.lines()) == 5, job)
    (cluster.folder / "finish").touch()
    assert job.communicate(timeout=60)[0] == ""
    assert job.returncode == 0
    servers = [line for line in cluster.lines() if "env_server" in line]
    assert sorted(servers) == [
        f"-m env_server --host 0.0.0.0 --port {port}" for port in (22341, 22342, 22343, 22344)
    ]
    (launch,) = (line for line in cluster.lines() if line not in servers)
    assert launch == (
        "-m torch.distributed.run --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-id 1234 "
        "--rdzv-endpoint node7:22340 -m trainer train --resume-or-new "
        f"--out {cluster.folder}/runs --server http://node7:22341 --server http://node7:22342 "
        "--server http://node7:22343 --server http://node7:22344 "
        "--preset qwen3-8b --set report_to=a b"
    )


@pytest.mark.parametrize(("sent", "queued"), [("USR1", ["requeue 1234"]), ("TERM", [])])
def test_a_job_at_its_time_limit_is_queued_again_after_the_checkpoint(cluster, sent, queued):
    job = cluster.start()
    wait_for(lambda: len(cluster.lines()) == 5, job)  # four servers, and the trainer
    job.send_signal(signal.Signals[f"SIG{sent}"])
    job.communicate(timeout=60)
    assert job.returncode == 143
    assert cluster.lines()[5:] == ["checkpoint", *queued]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_train_and_resume_after_the_time_limit(tmp_path):
    """With the real launcher and trainer, on the CPU."""
    cluster = Cluster(tmp_path, "127.0.0.1", gpus=2, SERVERS="1", PYTHON=sys.executable)
    cluster.environment["OMP_NUM_THREADS"] = "1"
    options = shlex.split(
        "--steps 2 --eval-limit 2 --eval-every 0 --set num_generations=2 --set save_steps=1"
        " --set per_device_train_batch_size=2 --set gradient_accumulation_steps=2"
        " --set step_budget=2 --set updates_per_batch=1"
    )
    job = cluster.start(*options)
    wait_for(lambda: bool(list(tmp_path.glob("runs/2*/checkpoints/checkpoint-1/*.json"))), job)
    job.send_signal(signal.SIGUSR1)
    output = job.communicate(timeout=300)[0]
    if job.returncode:  # else it had finished before the signal
        assert cluster.lines() == ["requeue 1234"], output
    job = cluster.start(*options)
    output = job.communicate(timeout=300)[0]
    assert job.returncode == 0, output
    assert "resum" in output or "is finished" in output
    assert len(list(tmp_path.glob("runs/2*/summary.json"))) == 1
