"""Jobs that wait for a worker process: a queue per client, served by the work done for each."""

import asyncio
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass

from env_server.sql.jobs import SqlJob, SqlResult

TASK_WORK = 1_000  # steps that each task counts, so that clients with equal work take turns
STOPPED_WORK = 1_000_000  # steps charged to a task that used up its slice: some are expensive
MAX_REMEMBERED = 1_000  # clients without tasks here whose work is remembered
# Whose jobs the current request runs. Set once per request, and inherited by every asyncio task
# that it starts.
CLIENT: ContextVar[str] = ContextVar("client", default="")


@dataclass(slots=True, eq=False)
class Task:
    job: SqlJob
    future: asyncio.Future[SqlResult]
    client: str = ""
    slow: bool = False  # it was pre-empted, or lost its worker
    number: int = 0  # under which it was last sent; they increase
    kills: int = 0  # workers that were lost while they worked on it
    stalls: int = 0  # workers that were lost while they had it, but got no CPU time

    def finish(self, result: SqlResult | Exception) -> None:
        """Give the caller its result or error, if it still waits."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class FairQueue:
    """Tasks in the order in which they are served: that of the client that has had least work done.

    A client's work counts from when it has tasks here: one that comes late is not owed what the
    others had before.
    """

    def __init__(self) -> None:
        self._clients: dict[str, OrderedDict[Task, None]] = {}  # no client without tasks
        self._work: dict[str, int] = {}  # by client; one that is not here has had `_least`
        self._least = 0  # the work of the client that was served last
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def clients(self) -> set[str]:
        return set(self._clients)

    def put(self, task: Task, *, first: bool = False) -> None:
        if (tasks := self._clients.get(task.client)) is None:
            tasks = self._clients[task.client] = OrderedDict()
            self._work[task.client] = max(self._work.get(task.client, 0), self._least)
        tasks[task] = None
        if first:
            tasks.move_to_end(task, last=False)
        self._length += 1

    def take(self) -> Task:
        """Remove and return the next task. `ValueError` if there is none."""
        client = min(self._clients, key=self._work.__getitem__)
        self._least = self._work[client]
        self.charge(client, TASK_WORK)
        task = next(iter(self._clients[client]))
        self.discard(task)
        return task

    def charge(self, client: str, work: int) -> None:
        """Count work that was done for a client, in steps of SQLite's virtual machine."""
        self._work[client] = max(self._work.get(client, 0), self._least) + work
        if len(self._work) > MAX_REMEMBERED + len(self._clients):
            self._work = {
                name: done
                for name, done in self._work.items()
                if name in self._clients or (done > self._least and name != client)
            }

    def discard(self, task: Task) -> bool:
        tasks = self._clients.get(task.client)
        if tasks is None or task not in tasks:
            return False
        del tasks[task]
        if not tasks:
            del self._clients[task.client]
        self._length -= 1
        return True
