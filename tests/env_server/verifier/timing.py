"""CPU time of a call, independent of load and of other threads."""

import time
from collections.abc import Callable


def cpu_s(call: Callable[[], object], tries: int = 3) -> float:
    """Return this thread's CPU seconds, the least of several tries: one may collect garbage."""
    times = []
    for _ in range(tries):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return min(times)
