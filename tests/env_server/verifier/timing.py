"""CPU time of a call, such as a loaded machine and other threads don't change."""

import time
from collections.abc import Callable


def cpu_s(call: Callable[[], object], tries: int = 3) -> float:
    """Seconds of this thread's CPU time, the least of several tries: a collection of garbage may
    fall into one."""
    times = []
    for _ in range(tries):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return min(times)
