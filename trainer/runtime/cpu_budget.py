"""The CPU cores and threads that a process may use. Imports nothing heavy, as `doctor` needs it."""

import os
from pathlib import Path

CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many CPU cores this process may use, by affinity and container quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = CGROUP_CPU_MAX.read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no quota
    return cores


def usable_threads(threads: int, processes: int = 1) -> int:
    """Return the threads for each of `processes`, where torch would choose `threads`, by the whole
    machine's cores. OMP_NUM_THREADS takes precedence."""
    if "OMP_NUM_THREADS" in os.environ:
        return threads
    return max(1, min(threads, usable_cores() // processes))


def limit_threads(processes: int = 1) -> int:
    import torch

    torch.set_num_threads(usable_threads(torch.get_num_threads(), processes))
    return torch.get_num_threads()
