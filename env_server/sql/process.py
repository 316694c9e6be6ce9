"""One worker process from the pool's side: send jobs, receive results, kill and restart it."""

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Protocol

from env_server.sql import jobs
from env_server.sql.limits import SqlLimits
from env_server.sql.queue import Task
from shared.errors import InternalError
from shared.shipped import INSTALLED

log = logging.getLogger(__name__)

MAX_START_FAILURES = 3  # in a row; after that, no job waits for the worker
AWAITED_S = 2.0  # a start takes 0.2 s; after that, the others do the worker's share
RETRY_START_S = 1.0
_FOUND_BY = ("PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
EXIT_S = 0.2  # of a process that failed to start, which says why before it exits


class Pool(Protocol):
    """What a worker needs of its `SqlPool`."""

    limits: SqlLimits
    counts: Counter[str]
    numbers: Iterator[int]
    open: bool

    def answered(self, task: Task, result: jobs.SqlResult) -> None: ...
    def put_back(self, tasks: Iterable[Task]) -> None: ...
    def dispatch(self) -> None: ...
    def give_up(self) -> None: ...


class WorkerProcess(asyncio.Protocol):
    """One process, and the jobs that it was `sent` and has not answered, in their order."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.process: subprocess.Popen[bytes] | None = None
        self.came_up = False
        self.sent: dict[int, Task] = {}
        self.stopping = 0  # the number of the job that it was last asked to stop
        self.since = 0.0  # monotonic seconds: when it got the first of its jobs, or lost the others
        self._newest = 0  # the number of the latest job
        self._unwritten: list[Task] = []
        self._transport: asyncio.Transport | None = None
        self._marker: jobs.Marker | None = None
        self._buffer = bytearray()
        self._heard = 0.0  # monotonic seconds: its last frame, or the job that ended its idleness
        self.failures = 0  # starts in a row that failed
        self.problem: str | None = None  # why the last start failed
        self._down_since = 0.0  # monotonic seconds: when it was lost, or first started
        self._stalled = False  # it is being killed because it got no CPU time
        self._starting: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._transport is not None and self.came_up

    @property
    def started(self) -> bool:
        """Whether the process was started and not closed; it may be starting again."""
        return self.process is not None or self._starting is not None

    @property
    def gave_up(self) -> bool:
        return self.failures >= MAX_START_FAILURES

    @property
    def is_awaited(self) -> bool:
        """Whether it is being started and soon takes jobs."""
        late = self.gave_up or time.monotonic() - self._down_since > AWAITED_S
        return self.started and not self.up and not late

    @property
    def load(self) -> int:
        return len(self.sent)

    @property
    def slow(self) -> bool:
        """Whether it has a slow job, which is then its only one."""
        return len(self.sent) == 1 and next(iter(self.sent.values())).slow

    @property
    def is_stopping(self) -> bool:
        """Whether it has yet to answer that it stopped a job."""
        return self.stopping in self.sent

    @property
    def current(self) -> int:
        """The number of the job that it runs, or 0. It may begin the next one at any time."""
        return self._read_marker()[0]

    def running_s(self) -> float:
        """Return for how many seconds the current job has run; 0 without one."""
        number, began, _ = self._read_marker()
        return time.monotonic() - began if number else 0.0

    def running_cpu_s(self) -> float | None:
        """Return the current job's CPU seconds; 0 without one, None if the system has no clock."""
        number, _, began = self._read_marker()
        if not number or self.process is None:
            return 0.0
        try:
            # Linux: a process's CPU clock, from its id
            return time.clock_gettime(~self.process.pid << 3 | 2) - began
        except OSError:
            return None

    # -- jobs

    def add(self, task: Task) -> None:
        """Add a job to the next frame, which `flush` sends."""
        now = time.monotonic()
        if not self.sent:
            # `_heard`: otherwise further jobs would keep a stuck worker alive
            self._heard = self.since = now
        task.number = next(self.pool.numbers)
        self.sent[task.number] = task
        self._newest = task.number
        self._unwritten.append(task)

    def flush(self) -> None:
        if self._unwritten and self._transport is not None:
            items = [(task.number, task.job) for task in self._unwritten]
            self._transport.write(jobs.encode_jobs(items))
        self._unwritten = []

    def recall(self, *, finished: bool = False) -> list[Task]:
        """Take back the jobs that the process has not begun; it skips them. `finished`: also those
        before the current one, whose results may wait for it."""
        if not self.up or not self.sent:
            return []
        assert self._marker is not None
        self._marker.put(jobs.REASSIGNED_AT, self._newest)
        current, begun = self.current, self._marker.get(jobs.BEGUN_AT)
        back = [n for n in self.sent if n > begun or (finished and n < current)]
        self.since = time.monotonic()
        return [self.sent.pop(number) for number in back]

    def stop_job(self, number: int) -> None:
        """Ask the process to give up a job, if it still runs it; it then answers with `STOPPED`."""
        if self._marker is not None and number:
            self._marker.put(jobs.STOP_AT, number)
            self.stopping = number

    def stop_unwanted(self) -> None:
        """Stop the current job if nobody waits for its result."""
        number = self.current
        task = self.sent.get(number)
        if number and number != self.stopping and (task is None or task.future.done()):
            self.stop_job(number)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= jobs.LENGTH.size:
            (size,) = jobs.LENGTH.unpack_from(self._buffer, start)
            if size > self.pool.limits.max_frame_bytes:
                log.error("a SQL worker sent a frame of %d bytes; killing it", size)
                self.kill()
                return
            end = start + jobs.LENGTH.size + size
            if len(self._buffer) < end:
                break
            self._answer(bytes(self._buffer[start + jobs.LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        self.pool.dispatch()

    def _answer(self, body: bytes) -> None:
        if not body:  # it is ready
            self.failures, self.problem = 0, None
            self.came_up = True
            return
        for number, result in jobs.decode_results(body):
            if (task := self.sent.pop(number, None)) is not None:
                self.pool.answered(task, result)

    # -- the process

    async def start(self) -> None:
        """Start the process and connect to it. It reports later that it is ready."""
        self._reap()
        # Of the parent's environment, which may hold secrets, only where packages and libraries
        # are; UTC for the modifier 'localtime'; one malloc arena: a second would reserve 64 MB of
        # address space.
        path = [str(INSTALLED), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        environment |= {name: os.environ[name] for name in _FOUND_BY if name in os.environ}
        environment |= {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
        environment |= {"TZ": "UTC", "MALLOC_ARENA_MAX": "1"}
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as page:
            page.truncate(jobs.MARKER_BYTES)
            self._marker = jobs.Marker(page.fileno())
            self._buffer.clear()
            descriptors = (theirs.fileno(), page.fileno())
            command = [sys.executable, "-P", "-m", "env_server.sql.worker", *map(str, descriptors)]
            self.process = subprocess.Popen(
                [*command, json.dumps(asdict(self.pool.limits))],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
        self._heard = time.monotonic()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)

    def kill_if_stuck(self) -> None:
        """Kill the worker if its job exceeds its time, it ignores jobs, or it does not start."""
        if self._transport is None:
            return
        limits, cpu_s = self.pool.limits, self.running_cpu_s()
        if (cpu_s or 0.0) > limits.kill_after_cpu_s or self.running_s() > limits.kill_after_s:
            self._stalled = cpu_s is not None and cpu_s <= limits.kill_after_cpu_s
            self.pool.counts["kills"] += 1
            self.kill()
            return
        silent_s, idle = time.monotonic() - self._heard, self.sent and not self.current
        limit_s = limits.kill_after_s if self.came_up else limits.start_timeout_s
        if silent_s > limit_s and (idle or not self.came_up):
            self.kill()

    def connection_lost(self, _: Exception | None) -> None:
        """Handle the worker's death: blame its current job if it got CPU time, resend the rest."""
        if self._transport is None:  # `stop` handles it
            return
        was_up, now = self.came_up, time.monotonic()
        number = self.current
        self._transport = None
        self.came_up = False
        end = self._reap(0.0 if was_up else EXIT_S)
        running, stalled, self._stalled = self.sent.get(number), self._stalled, False
        if running is not None:
            running.kills += not stalled
            running.stalls += stalled
        log.warning("lost a SQL worker%s; starting another", " during a job" if running else "")
        self.pool.counts["losses"] += 1
        if running is not None and running.kills >= self.pool.limits.max_kills:
            del self.sent[number]
            self.pool.counts["killed_jobs"] += 1
            error = "the query takes too long or too much memory"
            running.finish(jobs.SqlResult(error=error, error_code="sql_killed"))
        elif running is not None and running.stalls >= self.pool.limits.max_kills:
            del self.sent[number]
            reason = "a query got no CPU time in two workers"
            cause = "is the server suspended, or its disk not responding?"
            running.finish(InternalError(f"{reason}: {cause}"))
        tasks, self.sent, self._unwritten = list(self.sent.values()), {}, []
        if running is not None:
            # so that it waits behind the others, and kills no second worker soon
            running.slow = True
        self.pool.put_back(tasks)
        if was_up:
            self._down_since = now
        else:
            self.failures += 1
            self.problem = f"it exited with status {end}"
            if now - self._heard > self.pool.limits.start_timeout_s:
                self.problem = f"no answer within {self.pool.limits.start_timeout_s:g} s"
            elif end < 0:
                self.problem = signal.strsignal(-end) or f"signal {-end}"
        self.start_again()
        self.pool.dispatch()

    def start_again(self) -> None:
        """Start the process in the background, as often as it takes."""
        if not self.started:
            self._down_since = time.monotonic()
        self._starting = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        if self.gave_up:
            self.pool.give_up()
            await asyncio.sleep(RETRY_START_S)
        while self.pool.open:
            try:
                return await self.start()
            except OSError as error:
                log.error("can't start a SQL worker: %s", error)
                self.failures, self.problem = self.failures + 1, str(error)
                self.pool.give_up()
                await asyncio.sleep(RETRY_START_S)

    def stop(self) -> None:
        """End the process, which writes nothing and so has nothing to finish."""
        if self._starting is not None:
            self._starting.cancel()
        self._starting = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.came_up = False
        self._reap()

    def _reap(self, patience_s: float = 0.0) -> int:
        """End the process and return its exit status; minus the signal that ended it. It may first
        end by itself for `patience_s`, in which the event loop waits."""
        status = 0
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
            self.kill()
            status = self.process.wait()
            self.process = None
        if self._marker is not None:
            self._marker.close()
            self._marker = None
        return status

    def _read_marker(self) -> tuple[int, float, float]:
        return self._marker.running() if self._marker is not None else (0, 0.0, 0.0)
