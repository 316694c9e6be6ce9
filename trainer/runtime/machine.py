"""What a process may use of its machine: CPU cores, threads, memory, a C compiler.

Imports nothing heavy, as `doctor` needs it.
"""

import os
import shutil
import sysconfig
from pathlib import Path

GIB = 2**30
CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
CGROUP_MEMORY_MAX = Path("/sys/fs/cgroup/memory.max")


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
    """Limit torch to this process's share of the cores; return the number of its threads."""
    import torch

    torch.set_num_threads(usable_threads(torch.get_num_threads(), processes))
    return torch.get_num_threads()


def machine_memory() -> int:
    """Return the bytes of this machine's memory, or of the container's limit if that is less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(CGROUP_MEMORY_MAX.read_text()))
    except (OSError, ValueError):
        return total  # no limit


def can_compile_kernels() -> bool:
    """Return whether Triton finds a C compiler and Python's headers when kernels are first used."""
    compiler = "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))
    return compiler and Path(sysconfig.get_path("include"), "Python.h").is_file()
