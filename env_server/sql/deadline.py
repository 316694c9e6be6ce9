"""`Deadline`: interrupts a statement that has taken its CPU time.

SQLite heeds an interrupt where a loop turns, far more often than it counts steps: a thousand steps may be a thousand
calls of a dear function. The counting costs nothing more for it.
"""

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from env_server.sql.connection import SqlConnection

CHECK_EVERY_S = 0.05  # how late an interrupt can be


class Deadline:
    """Watches the statements of one thread from another, which starts with the first and ends with this object."""

    def __init__(self, max_cpu_s: float) -> None:
        self.max_cpu_s = max_cpu_s
        self._lock = threading.Lock()
        self._connection: SqlConnection | None = None
        self._began = 0.0
        self._clock = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, connection: SqlConnection) -> Iterator[None]:
        """Within, what `connection` runs is interrupted once it has taken `max_cpu_s`, with its `over` "cpu"."""
        if self._thread is None:
            self._start()
        with self._lock:
            self._connection, self._began = connection, time.clock_gettime(self._clock)
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def close(self) -> None:
        """End the thread; the next statement starts another."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Interrupt what is past its time. The lock keeps the interrupt from the statement after it."""
        with self._lock:
            connection = self._connection
            if connection is not None and time.clock_gettime(self._clock) - self._began > self.max_cpu_s:
                connection.over = "cpu"
                connection.raw.interrupt()

    def _start(self) -> None:
        # The CPU time of this thread alone, where the system tells it from the process's.
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        self._clock = of_thread(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._end = threading.Event()
        self._thread = threading.Thread(target=_watch, args=(weakref.ref(self), self._end), daemon=True)
        self._thread.start()


def _watch(reference: "weakref.ref[Deadline]", end: threading.Event) -> None:
    while not end.wait(CHECK_EVERY_S):
        deadline = reference()
        if deadline is None:
            return
        deadline.check()
        del deadline
