"""How many processes train, by default and in a resumed run, and the CPU cores
that a container may use."""

import os
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from shared.console import counted
from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import begin, latest
from trainer.__main__ import app
from trainer.config.settings import GRPOConfig
from trainer.run.folder import Run, read_json, write_json
from trainer.run.players import free_memory_bytes
from trainer.runtime.cpu_budget import usable_cores, usable_threads
from trainer.runtime.doctor import check_device
from trainer.runtime.launch import default_processes
from trainer.runtime.memory import GIB, machine_memory
from trainer.runtime.ranks import LAUNCHER


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that sets the cores, the memory in GiB and the GPUs of this machine."""

    def become(cores: int = 2, memory: float = 32, gpus: int = 0) -> None:
        monkeypatch.setattr("trainer.runtime.launch.usable_cores", lambda: cores)
        size = int(memory * GIB)
        found = SimpleNamespace(total=size, available=size)
        monkeypatch.setattr("psutil.virtual_memory", lambda: found)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    monkeypatch.setattr("trainer.runtime.memory.CGROUP_MEMORY_MAX", tmp_path / "memory.max")
    monkeypatch.setattr("sys.platform", "linux")
    become()
    return become


def default_for(
    config: GRPOConfig, kept: int | None = None, environment: Any = MappingProxyType({})
) -> int:
    return default_processes(config, "offline", kept, environment)


@pytest.mark.parametrize(
    ("cores", "memory", "processes"),
    [
        (3, 32, 2),  # 3 can't share 16 micro-batches
        (64, 32, 4),
        (4, 7.7, 2),
        (4, 1.9, 1),
    ],
)
def test_the_offline_model_trains_in_one_process_per_core_that_the_memory_allows(
    machine, cores, memory, processes
):
    machine(cores, memory)
    assert default_for(GRPOConfig.preset("offline")) == processes


def test_a_containers_limit_on_memory_counts(machine, tmp_path):
    (tmp_path / "memory.max").write_text("4294967296\n")
    assert machine_memory() == 4 * GIB
    assert 0 < free_memory_bytes("cpu", 2) < 2 * GIB  # less what each of two processes holds
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_memory() == 32 * GIB


def test_a_model_of_another_preset_trains_in_one_process(machine):
    config = GRPOConfig.preset("smollm2-135m", device="cpu")
    assert default_processes(config, "smollm2-135m", environment={}) == 1


def test_a_gpu_another_system_a_launcher_and_chosen_threads_leave_one_process(machine, monkeypatch):
    config = GRPOConfig.preset("offline")
    assert default_for(config, environment={"RANK": "0"}) == 2  # set by another program
    assert default_for(config, environment={"OMP_NUM_THREADS": "2"}) == 1
    assert default_for(config, environment=dict.fromkeys(LAUNCHER, "1")) == 1
    machine(gpus=1)
    assert default_for(config) == 2
    assert default_for(config.override(device="auto")) == 1
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_for(config) == 1


def test_a_resumed_run_keeps_its_number(machine):
    config, threads = GRPOConfig.preset("offline"), {"OMP_NUM_THREADS": "1"}
    assert default_for(config, 1, {}) == 1
    assert default_for(config, 4, threads) == 4
    assert (
        default_processes(config.override(gradient_accumulation_steps=8), "offline", 4, threads)
        == 2
    )
    assert default_for(config, 4, dict.fromkeys(LAUNCHER, "1")) == 1
    machine(gpus=2)
    assert default_for(config.override(device="cuda"), 4, {}) == 2


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of processes that commands started."""
    numbers: list[int] = []

    def launch(processes: int, *_: Any) -> int:
        numbers.append(processes)
        return 0

    monkeypatch.setattr("trainer.runtime.launch.launch", launch)
    monkeypatch.setattr("trainer.run.job.run_job", lambda *_, **__: numbers.append(1))
    return numbers


def train(*arguments: str, **environment: str | None) -> str:
    done = CliRunner().invoke(app, ["train", *arguments], env=environment)
    assert done.exit_code == 0, done.output
    return done.output


def test_every_way_to_resume_keeps_the_number_unless_another_is_given(
    small, tmp_path, machine, started
):
    begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    assert read_json(run.config)["processes"] == 1

    machine(4)
    for processes in (2, 1, 2):
        write_json(run.config, {**read_json(run.config), "processes": processes})
        train("--resume", str(run.path))
    train("--resume", str(run.path), "--processes", "1")
    assert started == [2, 1, 2, 1]


def test_a_run_that_is_found_keeps_its_number_and_a_finished_one_starts_nothing(
    tmp_path, machine, started, monkeypatch
):
    run = Run(tmp_path)
    write_json(run.config, {"processes": 2})
    monkeypatch.setattr("trainer.run.resume.find_run", lambda *_: (run, "found it"))
    train("--resume-or-new")
    assert started == [2]
    write_json(run.summary, {})
    run.seal()
    assert "found it" in train("--resume-or-new")
    assert started == [2]


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 2), ("20000 100000", 1), ("max 100000", 64), ("", 64)]
)
def test_a_containers_quota_counts(tmp_path, monkeypatch, limit, cores):
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr("trainer.runtime.cpu_budget.CGROUP_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert usable_cores() == cores
    assert usable_threads(64) == cores
    assert usable_threads(1) == 1
    details = {diagnosis.name: diagnosis.detail for diagnosis in check_device()}
    assert details["threads"].startswith(f"{counted(cores, 'CPU core')} for this process")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert usable_threads(64) == 64
