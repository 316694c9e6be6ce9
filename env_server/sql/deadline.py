"""`Deadline`: the limit on a job's CPU time, and the request to stop it."""

import threading
import time
import weakref
from collections.abc import Callable

from env_server.sql.connection import SqlConnection

CHECK_EVERY_S = 0.04  # an interrupt is at most twice as late


class Deadline:
    """Interrupts the statements of one thread, from another, after `max_cpu_s` of CPU time.

    Call `new_job` before a job, and `start` and `stop` around each attempt at it. SQLite checks for
    an interrupt in every iteration of a loop, far more often than it counts steps: a thousand steps
    may be a thousand calls of an expensive function.
    """

    def __init__(self, max_cpu_s: float, asked_to_stop: Callable[[], bool] = lambda: False) -> None:
        self.max_cpu_s = max_cpu_s
        self._asked_to_stop = asked_to_stop
        self._lock = threading.Lock()
        self._connection: SqlConnection | None = None
        self._job = 0
        self._seen_job = 0
        self._seen_at = 0.0  # CPU seconds when the watching thread first saw the job
        self._clock_id = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def new_job(self) -> None:
        """Count CPU time from here."""
        if self._thread is None:
            self._watch_this_thread()
        self._job += 1

    def start(self, connection: SqlConnection) -> None:
        """Watch the connection's statement."""
        self._connection = connection

    def stop(self) -> None:
        """Watch no statement."""
        with self._lock:  # an interrupt must not reach the next job
            self._connection = None

    def close(self) -> None:
        """End the watching thread; the next job starts another."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def check(self) -> None:
        """Interrupt the statement if its time is over, or if it was asked to stop."""
        with self._lock:
            connection = self._connection
            if connection is None:
                return
            if self._asked_to_stop():
                connection.exceeded = "stop"
                connection.raw.interrupt()
            now = time.clock_gettime(self._clock_id)
            if self._job != self._seen_job:
                self._seen_job, self._seen_at = self._job, now
            elif now - self._seen_at > self.max_cpu_s:
                connection.exceeded = "cpu"
                connection.raw.interrupt()

    def _watch_this_thread(self) -> None:
        # the CPU time of this thread alone, if the system measures it
        of_thread = getattr(time, "pthread_getcpuclockid", None)
        clock = of_thread(threading.get_ident()) if of_thread else time.CLOCK_PROCESS_CPUTIME_ID
        self._clock_id = clock
        self._end = threading.Event()
        arguments = (weakref.ref(self), self._end)
        self._thread = threading.Thread(target=_watch, args=arguments, daemon=True)
        self._thread.start()


def _watch(reference: "weakref.ref[Deadline]", end: threading.Event) -> None:
    while not end.wait(CHECK_EVERY_S):
        deadline = reference()
        if deadline is None:
            return
        deadline.check()
        del deadline
