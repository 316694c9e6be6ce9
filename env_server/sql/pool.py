"""`SqlPool`: worker processes for SQL, from asyncio. A query can kill its worker, nothing else."""

import asyncio
import zlib
from collections import Counter

from env_server.sql.jobs import SqlJob, SqlResult
from env_server.sql.limits import SqlLimits
from env_server.sql.process import MAX_START_FAILURES, SLOW_S, Task, WorkerProcess
from shared.errors import InternalError, NotReady

WATCH_EVERY_S = 0.25  # a kill is at most this late
IMBALANCE = 16  # jobs that a database's own worker may have more than the idlest one


class SqlPool:
    """`workers` processes that run `SqlJob`s, in one event loop. Use `async with`, or `start`.

    `counts` has jobs, kills (a job ran over its time), losses (a worker died, by a kill or
    otherwise), retries (jobs sent again after a loss), moved (jobs taken from behind a slow one)
    and killed_jobs.
    """

    def __init__(self, workers: int = 2, limits: SqlLimits | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self.limits = limits or SqlLimits()
        self.counts: Counter[str] = Counter()
        self._workers = [WorkerProcess(self) for _ in range(workers)]
        self._last = 0
        self._watch: asyncio.TimerHandle | None = None
        self.open = False

    async def __aenter__(self) -> "SqlPool":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def ready(self) -> bool:
        """Whether at least one worker is up."""
        return self.open and any(worker.up for worker in self._workers)

    @property
    def workers_up(self) -> int:
        """How many workers take jobs."""
        return sum(worker.up for worker in self._workers)

    @property
    def queue_depth(self) -> int:
        """Jobs that wait, or were sent and have no answer yet."""
        return sum(worker.load for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def start(self) -> None:
        """Start the workers and wait for them. Raises `NotReady` if one does not start."""
        self.open = True
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
            await asyncio.wait_for(self._all_up(), self.limits.start_timeout_s)
        except (OSError, TimeoutError) as error:
            await self.close()
            reason = f"{error or 'no answer'}; see stderr"
            raise NotReady(f"no SQL worker started: {reason}") from error
        self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY_S, self._look)

    async def close(self) -> None:
        """Stop the workers. Waiting jobs fail with `NotReady`."""
        self.open = False
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def run(self, job: SqlJob) -> SqlResult:
        """Return a job's result, which also reports errors of its SQL.

        Raises `NotReady` if the pool is closed or no worker starts, `InternalError` for a fault of
        this package.
        """
        if not self.open:
            raise NotReady("the SQL pool is not running", retry_after_s=1)
        try:
            job.sql.encode()
        except UnicodeEncodeError:
            error = "the query holds text that is not Unicode"
            return SqlResult(error=error, error_code="sql_error")
        self.counts["jobs"] += 1
        task = Task(job, asyncio.get_running_loop().create_future())
        self._choose(job.db_path).submit(task)
        result = await task.future
        if result.error_code == "internal":
            raise InternalError(f"a SQL worker failed: {result.error}")
        return result

    async def _all_up(self) -> None:
        while not all(worker.up for worker in self._workers):
            if any(worker.failures >= MAX_START_FAILURES for worker in self._workers):
                raise OSError(f"{MAX_START_FAILURES} starts failed")
            await asyncio.sleep(0.005)

    def _choose(self, db_path: str) -> WorkerProcess:
        """Return a database's own worker, which has its connection open, unless it is too busy."""
        own = self._workers[zlib.crc32(db_path.encode(errors="replace")) % len(self._workers)]
        if own.up and not own.load:
            return own
        idlest = min(self._workers, key=lambda worker: (not worker.up, worker.load))
        busy = own.load - idlest.load > IMBALANCE
        slow = idlest.load < own.load and own.running_s() > SLOW_S
        return idlest if not own.up or busy or slow else own

    def number(self) -> int:
        """Return the number under which to send the next job."""
        self._last += 1
        return self._last

    def free_worker(self, busy: WorkerProcess) -> WorkerProcess | None:
        """Return the least loaded other worker that is up and not running a slow job."""
        others = (worker for worker in self._workers if worker is not busy and worker.up)
        free = (worker for worker in others if worker.running_s() <= SLOW_S)
        return min(free, key=lambda worker: worker.load, default=None)

    def _look(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY_S, self._look)
        for worker in self._workers:
            worker.kill_if_stuck()
