"""How much of the machine a process may use. It imports nothing heavy: `doctor` runs without torch,
too."""

import os
from pathlib import Path

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """CPU cores that this process may use: by its affinity and by its container's quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = CGROUP_CPU_MAX.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no such limit
    return cores


def usable_threads(threads: int, processes: int = 1) -> int:
    """Of torch's own choice of threads, as many as a process's share of the cores: in a container
    torch counts the whole machine's.

    OMP_NUM_THREADS, which decides that choice, wins.
    """
    return (
        threads
        if "OMP_NUM_THREADS" in os.environ
        else max(1, min(threads, usable_cores() // processes))
    )
