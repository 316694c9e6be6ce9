"""One worker process as the pool sees it: what it was sent, what it answered, when it must be
killed, and the next."""

import asyncio
import json
import logging
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from env_server.sql.jobs import (
    LEFT_OUT,
    LEFT_OUT_AT,
    LENGTH,
    MARKER,
    MARKER_BYTES,
    SqlJob,
    SqlResult,
    decode_results,
    encode_jobs,
)
from env_server.sql.limits import SqlPolicy
from shared.errors import InternalError, NotReady

log = logging.getLogger(__name__)

MAX_START_FAILURES = 3  # in a row; then waiting jobs fail rather than wait on
RETRY_START_S = 1.0
END_TIMEOUT_S = 2.0  # for a worker to leave by itself
SLOW_S = 0.03  # a job that runs for so long loses those that wait behind it to another worker
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True, eq=False)
class Task:
    job: SqlJob
    future: asyncio.Future[SqlResult]
    number: int = 0  # of its last sending; each has its own, and they rise
    kills: int = 0  # of workers, by this job
    stalls: int = 0  # of workers that did not work on it


class Pool(Protocol):
    """What a worker needs of the pool that it is part of. `counts`: see `SqlPool`."""

    policy: SqlPolicy
    counts: Counter[str]
    open: bool

    def number(self) -> int: ...
    def free_worker(self, busy: "WorkerProcess") -> "WorkerProcess | None": ...


class WorkerProcess(asyncio.Protocol):
    """One process and what is asked of it. `waiting` is not sent yet; `sent` is not answered yet,
    by number."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.process: subprocess.Popen[bytes] | None = None
        self.came_up = asyncio.Event()
        self.waiting: list[Task] = []
        self.sent: dict[int, Task] = {}
        self._transport: asyncio.Transport | None = None
        self._marker: mmap.mmap | None = None
        self._buffer = bytearray()
        self._flush_due = False
        self._patience: asyncio.TimerHandle | None = None  # runs while a job waits behind another
        # monotonic seconds, of its last frame, or of the one that gave it something to do
        self._heard = 0.0
        self.failures = 0  # starts in a row that came to nothing
        self._stalled = False  # it is killed for what its job is not to blame for
        self._starting: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._transport is not None and self.came_up.is_set()

    @property
    def load(self) -> int:
        return len(self.waiting) + len(self.sent)

    def running_s(self) -> float:
        """Seconds for which the job that runs has run; 0 where none does."""
        number, began, _ = self._read_marker()
        return time.monotonic() - began if number in self.sent else 0.0

    def running_cpu_s(self) -> float | None:
        """CPU seconds that the job that runs has taken; 0 where none does, None where the system
        does not say."""
        number, _, began = self._read_marker()
        if number not in self.sent or self.process is None:
            return 0.0
        try:
            # Linux: a process's CPU clock, from its id
            return time.clock_gettime(~self.process.pid << 3 | 2) - began
        except OSError:
            return None

    # -- jobs
    # ------------------------------------------------------------------------------------------------------

    def submit(self, task: Task) -> None:
        """Jobs of one tick of the loop leave in one frame."""
        self.waiting.append(task)
        if not self._flush_due and self.up:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if not self.up or not self.waiting:
            return
        assert self._transport is not None
        batch, self.waiting = [task for task in self.waiting if not task.future.done()], []
        if not self.sent:  # else further jobs would keep one alive that does nothing
            self._heard = time.monotonic()
        for task in batch:
            task.number = self.pool.number()
            self.sent[task.number] = task
        self._transport.write(encode_jobs([(task.number, task.job) for task in batch]))
        if self._patience is None and self.load > 1:
            self._patience = asyncio.get_running_loop().call_later(SLOW_S, self._move_on)

    def _move_on(self) -> None:
        """Where a job has run for `SLOW_S`, those behind it go to a worker that is at none such, if
        there is one."""
        self._patience = None
        if not self.up or self.load < 2:
            return
        number, began, _ = self._read_marker()
        slow = number in self.sent and time.monotonic() - began > SLOW_S
        if slow and (other := self.pool.free_worker(self)) is not None:
            behind = [
                task for task in (*self.sent.values(), *self.waiting) if task.number != number
            ]
            assert self._marker is not None
            LEFT_OUT.pack_into(self._marker, LEFT_OUT_AT, max(self.sent))
            self.sent = {number: self.sent[number]}
            self.waiting = []
            self.pool.counts["moved"] += len(behind)
            for task in behind:
                other.submit(task)
        else:
            self._patience = asyncio.get_running_loop().call_later(SLOW_S, self._move_on)

    def data_received(self, data: bytes) -> None:
        self._heard = time.monotonic()
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer, start)
            if size > self.pool.policy.max_frame_bytes:
                log.error("a SQL worker sent a frame of %d bytes; killing it", size)
                self.kill()
                return
            end = start + LENGTH.size + size
            if len(self._buffer) < end:
                break
            self._answer(bytes(self._buffer[start + LENGTH.size : end]))
            start = end
        del self._buffer[:start]

    def _answer(self, body: bytes) -> None:
        if not body:  # hello
            self.failures = 0
            self.came_up.set()
            self._flush()
            return
        for number, result in decode_results(body):
            task = self.sent.pop(number, None)
            if task is not None and not task.future.done():
                task.future.set_result(result)

    # -- the process
    # -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Spawn the process and connect to it. Its hello comes later."""
        self._reap()
        ours, theirs = socket.socketpair()
        with theirs, tempfile.TemporaryFile() as page:
            page.truncate(MARKER_BYTES)
            self._marker = mmap.mmap(page.fileno(), MARKER_BYTES)
            self._buffer.clear()
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "env_server.sql.worker", str(theirs.fileno()), str(page.fileno()),
                 json.dumps(asdict(self.pool.policy))],
                pass_fds=(theirs.fileno(), page.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Nothing of the parent's environment, where secrets are; UTC for the modifier
                # 'localtime'; one arena, since a second would reserve 64 MB of the address space.
                env={"PYTHONPATH": str(_ROOT), "TZ": "UTC", "LC_ALL": "C.UTF-8", "PATH": os.defpath,
                     "MALLOC_ARENA_MAX": "1"},
            )  # fmt: skip
        self._heard = time.monotonic()
        ours.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: self, sock=ours
        )
        self._transport = transport

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)

    def kill_if_stuck(self) -> None:
        """Past its time: the job that runs, the whole worker that does nothing with what it was
        sent, or its start."""
        if self._transport is None:
            return
        policy, cpu_s = self.pool.policy, self.running_cpu_s()
        if (cpu_s or 0.0) > policy.kill_after_cpu_s or self.running_s() > policy.kill_after_s:
            self._stalled = cpu_s is not None and cpu_s <= policy.kill_after_cpu_s
            self.pool.counts["kills"] += 1
            self.kill()
        elif not self.came_up.is_set():
            if time.monotonic() - self._heard > policy.start_timeout_s:
                self.kill()
        elif (
            self.sent
            and not self._read_marker()[0]
            and time.monotonic() - self._heard > policy.kill_after_s
        ):
            self.kill()

    def connection_lost(self, error: Exception | None) -> None:
        """The worker is dead: blame the job that ran, unless it waited all the time; send the
        others again."""
        if self._transport is None:  # `stop` sees to it
            return
        was_up = self.came_up.is_set()
        number = self._read_marker()[0]
        self._transport = None
        self.came_up.clear()
        self._reap()
        running, stalled, self._stalled = self.sent.get(number), self._stalled, False
        if running is not None:
            running.kills += not stalled
            running.stalls += stalled
        log.warning(
            "lost a SQL worker%s; starting another", " in the middle of a job" if running else ""
        )
        self.pool.counts["losses"] += 1
        if running is not None and running.kills >= self.pool.policy.max_kills:
            del self.sent[number]
            self.pool.counts["killed_jobs"] += 1
            if not running.future.done():
                running.future.set_result(
                    SqlResult(
                        error="the query takes too long or too much memory", error_code="sql_killed"
                    )
                )
        elif running is not None and running.stalls >= self.pool.policy.max_kills:
            del self.sent[number]
            if not running.future.done():
                why = "a query got no CPU time on this server, twice: its disk is stuck, or it was stopped"
                running.future.set_exception(InternalError(why))
        self.pool.counts["retries"] += len(self.sent)
        tasks = [*self.sent.values(), *self.waiting]
        self.sent, self.waiting = {}, []
        other = self.pool.free_worker(self)
        for task in tasks:  # the one to blame waits for the next process; the innocent need not
            (other if other is not None and task is not running else self).submit(task)
        if not was_up:
            self.failures += 1
        self._starting = asyncio.get_running_loop().create_task(self._start_again())

    async def _start_again(self) -> None:
        if self.failures >= MAX_START_FAILURES:
            self._fail("no SQL worker comes up; see stderr for why")
            await asyncio.sleep(RETRY_START_S)
        while self.pool.open:
            try:
                return await self.start()
            except OSError as error:
                log.error("can't start a SQL worker: %s", error)
                self.failures += 1
                self._fail("no SQL worker comes up; see stderr for why")
                await asyncio.sleep(RETRY_START_S)

    async def stop(self) -> None:
        """Close the socket, upon which the process ends; kill it where it does not."""
        if self._starting is not None:
            self._starting.cancel()
        self._fail("the SQL pool is closing")
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.came_up.clear()
        if self.process is not None:
            deadline = time.monotonic() + (END_TIMEOUT_S if not self._read_marker()[0] else 0.0)
            while self.process.poll() is None and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
        self._reap()

    def _fail(self, why: str) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for task in (*self.sent.values(), *self.waiting):
            if not task.future.done():
                task.future.set_exception(NotReady(why, retry_after_s=1))
        self.sent, self.waiting = {}, []

    def _reap(self) -> None:
        if self.process is not None:
            self.kill()
            self.process.wait()
            self.process = None
        if self._marker is not None:
            self._marker.close()
            self._marker = None

    def _read_marker(self) -> tuple[int, float, float]:
        """-> the number of the job that runs, its start on the monotonic clock, and in CPU time."""
        return MARKER.unpack_from(self._marker) if self._marker is not None else (0, 0.0, 0.0)
