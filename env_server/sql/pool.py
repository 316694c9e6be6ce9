"""`SqlPool`: worker processes for SQL, from asyncio. A query can kill its worker, and nothing else
with it."""

import asyncio
import zlib
from collections import Counter
from types import TracebackType

from env_server.sql.jobs import SqlJob, SqlResult
from env_server.sql.limits import SqlPolicy
from env_server.sql.process import MAX_START_FAILURES, SLOW_S, Task, WorkerProcess
from shared.errors import InternalError, NotReady

WATCH_EVERY_S = 0.25  # how late a kill can be
# jobs by which a database's own worker may be busier than another before it loses one to it
IMBALANCE = 16


class SqlPool:
    """`workers` processes that run `SqlJob`s. Start it, or use `async with`; it belongs to that
    event loop.

    `counts` counts jobs, kills (a job ran past its time), losses (a worker died, by that or
    otherwise), retries (jobs sent again after a loss), moved (jobs taken from behind a slow one)
    and killed_jobs.
    """

    def __init__(self, workers: int = 2, policy: SqlPolicy | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self.policy = policy or SqlPolicy()
        self.counts: Counter[str] = Counter()
        self._workers = [WorkerProcess(self) for _ in range(workers)]
        self._last = 0
        self._watch: asyncio.TimerHandle | None = None
        self.open = False

    async def __aenter__(self) -> "SqlPool":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def ready(self) -> bool:
        """Whether a worker is up."""
        return self.open and any(worker.up for worker in self._workers)

    @property
    def workers_up(self) -> int:
        """How many workers take jobs."""
        return sum(worker.up for worker in self._workers)

    @property
    def queue_depth(self) -> int:
        """Jobs that wait or are sent and unanswered."""
        return sum(worker.load for worker in self._workers)

    @property
    def pids(self) -> list[int]:
        """Of the workers that run."""
        return [worker.process.pid for worker in self._workers if worker.process is not None]

    async def start(self) -> None:
        """Start the workers and wait for them. `NotReady` where one does not come up."""
        self.open = True
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
            await asyncio.wait_for(self._all_up(), self.policy.start_timeout_s)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise NotReady(
                f"no SQL worker came up ({error or 'no answer'}); see stderr for why"
            ) from error
        self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY_S, self._look)

    async def close(self) -> None:
        """Stop the workers. Jobs that wait fail with `NotReady`."""
        self.open = False
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def run(self, job: SqlJob) -> SqlResult:
        """A job's result. What its SQL does wrong is in the result; raises

        NotReady           the pool is closed, or no worker comes up
        InternalError      a fault of this package
        """
        if not self.open:
            raise NotReady("the SQL pool is not running", retry_after_s=1)
        try:
            job.sql.encode()
        except UnicodeEncodeError:
            return SqlResult(
                error="the query holds text that is not Unicode", error_code="sql_error"
            )
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
        """A database has its own worker, where its connection is open; unless that one is much
        busier than another."""
        own = self._workers[zlib.crc32(db_path.encode(errors="replace")) % len(self._workers)]
        if own.up and not own.load:
            return own
        idlest = min(self._workers, key=lambda worker: (not worker.up, worker.load))
        if (
            not own.up
            or own.load - idlest.load > IMBALANCE
            or (idlest.load < own.load and own.running_s() > SLOW_S)
        ):
            return idlest
        return own

    def number(self) -> int:
        """The next of the numbers that jobs are sent under."""
        self._last += 1
        return self._last

    def free_worker(self, busy: WorkerProcess) -> WorkerProcess | None:
        """The least loaded of the others that are up and at no slow job."""
        free = [
            worker
            for worker in self._workers
            if worker is not busy and worker.up and worker.running_s() <= SLOW_S
        ]
        return min(free, key=lambda worker: worker.load, default=None)

    def _look(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY_S, self._look)
        for worker in self._workers:
            worker.kill_if_stuck()
