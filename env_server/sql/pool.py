"""`SqlPool`: worker processes for SQL, from asyncio. A query can kill its worker, nothing else.

Jobs wait in a queue per client (`queue.CLIENT`) and go to workers in frames. The client for which
the least work was done is served next.

While others wait, a job may run for a slice. Then it is stopped and becomes a slow job, which later
starts anew with its full budget, so its result is that of an undisturbed run. Slow jobs run to
their end, unless fresh jobs wait and every worker has a slow one. At least one worker takes slow
jobs while there are any, so none waits for ever. If only one worker is left and no other starts,
it runs one slow job to its end, then fresh jobs for `ROUND_S`, and so on.
"""

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from itertools import count

from env_server.sql.jobs import STOPPED, SqlJob, SqlResult
from env_server.sql.limits import SqlLimits
from env_server.sql.process import WorkerProcess
from env_server.sql.queue import CLIENT, STOPPED_WORK, FairQueue, Task
from shared.errors import InternalError, NotReady

WATCH_EVERY_S = 0.25  # a kill is at most this late
RELIEVE_EVERY_S = 0.005  # while jobs wait
IMBALANCE = 16  # jobs that a database's own worker may have more than the idlest one
WINDOW = 128  # jobs that a worker has at once: two batches of a trainer
BUSY_S = 0.01  # the jobs behind one that has run this long move to another worker
# Of CPU time, as a loaded machine must not make jobs slow. p99 of plausible queries takes 7 ms. A
# round of all clients takes `ROUND_S` at most, so that many of them wait no longer than a few.
SLICE_S, MIN_SLICE_S, ROUND_S = 0.05, 0.01, 0.4


class SqlPool:
    """`workers` processes that run `SqlJob`s, in one event loop. Use it inside `async with`.

    With one worker, another starts when the first slow job waits: one process can't both finish a
    job of 2 s and answer others within 1 s.

    `telemetry.SQL_COUNTERS` describes the `counts`.
    """

    def __init__(self, workers: int = 2, limits: SqlLimits | None = None) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self.limits = limits or SqlLimits()
        self.counts: Counter[str] = Counter()
        self._at_start = workers
        self.processes = [WorkerProcess(self) for _ in range(max(2, workers))]
        self._fresh, self._slow = FairQueue(), FairQueue()
        self._fresh_at = 0.0  # monotonic seconds: when a fresh job waited or ended last
        self._slow_at = 0.0  # monotonic seconds: the end of the latest slow job
        self.numbers = count(1)  # under which jobs are sent
        self._dispatch_due = False
        self._relief: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.open = False

    @property
    def workers_up(self) -> int:
        return sum(worker.up for worker in self.processes)

    @property
    def ready(self) -> bool:
        return self.open and self.workers_up > 0

    @property
    def problem(self) -> str | None:
        """What keeps workers from starting, in one line; None if all start."""
        reasons = [worker.problem for worker in self.processes if worker.problem]
        if not reasons:
            return None
        started = sum(worker.started for worker in self.processes)
        return f"{len(reasons)} of {started} SQL workers can't start: {reasons[0]}"

    @property
    def queue_depth(self) -> int:
        """Jobs that wait, or were sent and have no answer yet."""
        sent = sum(worker.load for worker in self.processes)
        return len(self._fresh) + len(self._slow) + sent

    async def __aenter__(self) -> "SqlPool":
        """Start the workers and wait for them. Raises `NotReady` if one does not start."""
        self.open = True
        try:
            workers = self.processes[: self._at_start]
            await asyncio.gather(*(worker.start() for worker in workers))
            async with asyncio.timeout(self.limits.start_timeout_s):
                while not all(worker.up for worker in workers):
                    if any(worker.gave_up for worker in workers):
                        raise OSError(self.problem)
                    await asyncio.sleep(0.005)
        except (OSError, TimeoutError) as error:
            await self.close()
            reason = str(error) or "no answer"
            raise NotReady(f"no SQL worker started: {reason}; see stderr") from error
        self._watch_workers()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the workers. Waiting jobs fail with `NotReady`."""
        self.open = False
        for timer in (self._watch, self._relief):
            if timer is not None:
                timer.cancel()
        sent = [task for worker in self.processes for task in worker.sent.values()]
        _fail([*sent, *_drain(self._fresh), *_drain(self._slow)], "the SQL pool is closing")
        for worker in self.processes:
            worker.stop()

    async def run(self, job: SqlJob) -> SqlResult:
        """Return a job's result, which also reports errors of its SQL.

        If the caller is cancelled, the job is removed from its queue, or stopped. Raises `NotReady`
        if the pool is closed or no worker starts, `InternalError` for a fault of this package.
        """
        if not self.open:
            raise NotReady("the SQL pool is not running", retry_after_s=1)
        try:
            job.sql.encode()
        except UnicodeEncodeError:
            error = "the query holds text that is not Unicode"
            return SqlResult(error=error, error_code="sql_error")
        self.counts["jobs"] += 1
        loop = asyncio.get_running_loop()
        task = Task(job, loop.create_future(), CLIENT.get())
        self._fresh.put(task)
        if not self._dispatch_due:  # the jobs of one iteration of the event loop share a frame
            self._dispatch_due = True
            loop.call_soon(self.dispatch)
        try:
            result = await task.future
        except asyncio.CancelledError:
            self._cancel(task)
            raise
        if result.error_code == "internal":
            raise InternalError(f"a SQL worker failed: {result.error}")
        return result

    def _cancel(self, task: Task) -> None:
        if self._fresh.discard(task) or self._slow.discard(task):
            return
        for worker in self.processes:
            if task.number in worker.sent:
                worker.stop_unwanted()
                self.put_back(worker.recall())  # so that it is not begun
                self.dispatch()

    # -- who runs what

    def dispatch(self) -> None:
        self._dispatch_due = False
        if not self.open:
            return
        if self._slow:
            self._send_slow()
        if self._fresh:
            self._send_fresh()
        crowded = any(worker.load > 1 for worker in self.processes)
        if self._relief is None and (self._fresh or self._slow or crowded):
            loop = asyncio.get_running_loop()
            self._relief = loop.call_later(RELIEVE_EVERY_S, self._relieve)

    def _send_slow(self) -> None:
        """Send slow jobs, each to an idle worker of its own, and leave one worker to fresh jobs.

        Unless a worker is being started, that one takes a slow job too if no fresh job came for a
        while, or if it is the only one and it is a slow job's turn.
        """
        for worker in self.processes:
            if not worker.started:
                worker.start_again()
        up = [worker for worker in self.processes if worker.up]
        for_fresh = 0 if self._all_for_slow() else 1
        room = len(up) - for_fresh - sum(worker.slow for worker in up)
        for worker in reversed(up):  # fresh jobs of a few databases rather go to the others
            if room > 0 and not worker.load and self._slow:
                worker.add(self._slow.take())
                worker.flush()
                room -= 1

    def _all_for_slow(self) -> bool:
        """Whether slow jobs may have every worker that is up."""
        if any(worker.is_awaited for worker in self.processes):
            return False
        now, alone = time.monotonic(), self.workers_up == 1
        pause_s = ROUND_S if alone else SLICE_S
        quiet = not self._fresh and now - self._fresh_at > pause_s
        return quiet or (alone and now - self._slow_at > ROUND_S)

    def _send_fresh(self) -> None:
        """Send fresh jobs; if every worker has a slow job, stop the one that began last."""
        self._fresh_at = time.monotonic()
        free = [worker for worker in self.processes if self._takes_fresh(worker)]
        any_slow = any(worker.slow for worker in self.processes)
        if self._slow and free and not any_slow and (len(free) > 1 or self._all_for_slow()):
            free.remove(min(free, key=lambda worker: worker.load))  # for the next slow job
        used = free.copy()
        # a frame's results may wait for its last job
        alone = bool(self._slow) or any_slow
        while self._fresh and free:
            task = self._fresh.take()
            worker = self._choose(task.job.db_path, free)
            worker.add(task)
            if alone:
                worker.flush()
            if worker.load >= WINDOW:
                free.remove(worker)
        for worker in used:
            worker.flush()
        slow = [worker for worker in self.processes if worker.slow and worker.up]
        all_slow = len(slow) == self.workers_up > 1 and not any(one.is_stopping for one in slow)
        if self._fresh and all_slow:
            latest = min(slow, key=WorkerProcess.running_s)
            latest.stop_job(latest.current)

    def _takes_fresh(self, worker: WorkerProcess) -> bool:
        ready = worker.up and not worker.slow and not worker.is_stopping
        return ready and worker.load < WINDOW and worker.running_s() <= BUSY_S

    def _choose(self, db_path: str, free: list[WorkerProcess]) -> WorkerProcess:
        """Return a database's own worker, which has its connection open, unless it is too busy."""
        if len(free) == 1:
            return free[0]
        own = self.processes[zlib.crc32(db_path.encode(errors="replace")) % len(self.processes)]
        idlest = min(free, key=lambda worker: worker.load)
        return own if own in free and own.load - idlest.load <= IMBALANCE else idlest

    def _relieve(self) -> None:
        """Stop a job whose slice is over, and take back the jobs that wait too long behind it."""
        self._relief = None
        clients = self._fresh.clients
        slice_s = min(SLICE_S, max(MIN_SLICE_S, ROUND_S / max(1, len(clients))))
        for worker in self.processes:
            if worker.slow or worker.is_stopping or not (worker.load > 1 or clients):
                continue
            # before its times: if another begins meanwhile, they are that one's, and short
            number = worker.current
            ran_s, ran_cpu_s = worker.running_s(), worker.running_cpu_s()
            others = (other for other in self.processes if other is not worker)
            if ran_s > BUSY_S and any(map(self._takes_fresh, others)):
                behind = worker.recall(finished=True)
                self.counts["moved"] += len(behind)
            elif (ran_s if ran_cpu_s is None else ran_cpu_s) > slice_s:
                behind = worker.recall()
                worker.stop_job(number)
            elif time.monotonic() - worker.since > SLICE_S:
                shared = len(clients | {task.client for task in worker.sent.values()}) > 1
                behind = worker.recall() if shared else []
            else:
                continue
            self.put_back(behind)
        self.dispatch()

    # -- what the workers report

    def answered(self, task: Task, result: SqlResult) -> None:
        """Give a result to its caller. A job that was stopped waits again, as a slow one."""
        stopped = result.error_code == STOPPED
        queue = self._slow if task.slow else self._fresh
        if task.slow:
            self._slow_at = time.monotonic()
        else:
            self._fresh_at = time.monotonic()
        queue.charge(task.client, max(result.vm_steps, STOPPED_WORK if stopped else 0))
        if not stopped:
            task.finish(result)
        elif not task.future.done():
            self.counts["preempted"] += 1
            # one that was slow before keeps its turn
            self._slow.put(task, first=task.slow)
            task.slow = True

    def put_back(self, tasks: Iterable[Task]) -> None:
        """Let jobs that were sent wait again, before the others of their clients."""
        for task in reversed(list(tasks)):
            if not task.future.done():
                (self._slow if task.slow else self._fresh).put(task, first=True)

    def give_up(self) -> None:
        """Fail the jobs that wait if no worker is up and every one failed to start too often."""
        started = [worker for worker in self.processes if worker.started]
        if not any(worker.up or not worker.gave_up for worker in started):
            reason = f"{self.problem}; see stderr"
            _fail([*_drain(self._fresh), *_drain(self._slow)], reason)

    def _watch_workers(self) -> None:
        """Stop jobs that nobody waits for, and kill stuck workers, again and again."""
        self._watch = asyncio.get_running_loop().call_later(WATCH_EVERY_S, self._watch_workers)
        for worker in self.processes:
            worker.stop_unwanted()
            worker.kill_if_stuck()


def _drain(queue: FairQueue) -> list[Task]:
    return [queue.take() for _ in range(len(queue))]


def _fail(tasks: Iterable[Task], reason: str) -> None:
    for task in tasks:
        task.finish(NotReady(reason, retry_after_s=1))
