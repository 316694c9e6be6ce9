import os
from pathlib import Path

import pytest

from shared.console import counted
from trainer.doctor import check_device
from trainer.runtime.cpu_budget import usable_cores, usable_threads


@pytest.mark.parametrize(
    ("limit", "cores"), [("150000 100000", 2), ("20000 100000", 1), ("max 100000", 64), ("", 64)]
)
def test_a_containers_quota_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, cores: int
) -> None:
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
