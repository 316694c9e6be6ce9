"""`Deadline`: interrupts a statement that has taken its CPU time.

SQLite heeds an interrupt where a loop turns, far more often than it counts steps: a thousand steps
may be a thousand calls of a dear function. A statement that is done in time, as nearly all are,
costs a microsecond more for it.
"""

import threading
import time
import weakref

from env_server.sql.connection import SqlConnection

CHECK_EVERY_S = 0.04  # twice that is how late an interrupt can be


class Deadline:
    """Watches the statements of one thread from another, which starts with the first and ends with
    this object.

    Call `start` before a job and `stop` after it. In between, what the connection runs is
    interrupted once it has taken `max_cpu_s`, with its `over` "cpu".
    """

    def __init__(self, max_cpu_s: float) -> None:
        self.max_cpu_s = max_cpu_s
        self._lock = threading.Lock()
        self._connection: SqlConnection | None = None
        self._job = 0
        self._seen_job = 0
        self._seen_at = 0.0  # CPU seconds, when the watching thread first saw the job
        self._clock = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, connection: SqlConnection) -> None:
        if self._thread is None:
            self._watch_this_thread()
        self._job += 1
        self._connection = connection

    def stop(self) -> None:
        with self._lock:  # an interrupt must not reach the next job
            self._connection = None

    def close(self) -> None:
        """End the thread; the next job starts another."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Interrupt what is past its time."""
        with self._lock:
            connection = self._connection
            if connection is None:
                return
            now = time.clock_gettime(self._clock)
            if self._job != self._seen_job:
                self._seen_job, self._seen_at = self._job, now
            elif now - self._seen_at > self.max_cpu_s:
                connection.over = "cpu"
                connection.raw.interrupt()

    def _watch_this_thread(self) -> None:
        # The CPU time of this thread alone, where the system tells it from the process's.
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        self._clock = (
            of_thread(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        )
        self._end = threading.Event()
        self._thread = threading.Thread(
            target=_watch, args=(weakref.ref(self), self._end), daemon=True
        )
        self._thread.start()


def _watch(reference: "weakref.ref[Deadline]", end: threading.Event) -> None:
    while not end.wait(CHECK_EVERY_S):
        deadline = reference()
        if deadline is None:
            return
        deadline.check()
        del deadline
