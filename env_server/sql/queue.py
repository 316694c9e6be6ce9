"""Jobs that wait for a worker process: a queue per client, served round robin."""

import asyncio
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass

from env_server.sql.jobs import SqlJob, SqlResult

# Whose jobs the current request runs. Set once per request, and inherited by every asyncio task
# that it starts.
CLIENT: ContextVar[str] = ContextVar("client", default="")


@dataclass(slots=True, eq=False)
class Task:
    """A job and the future of its result."""

    job: SqlJob
    future: asyncio.Future[SqlResult]
    client: str = ""
    slow: bool = False  # it was pre-empted, or lost its worker
    number: int = 0  # under which it was last sent; they increase
    kills: int = 0  # workers that were lost while they worked on it
    stalls: int = 0  # workers that were lost while they had it, but got no CPU time


class FairQueue:
    """Tasks in the order in which they are served: one of each client in turn."""

    def __init__(self) -> None:
        # a client's tasks, the clients in the order of their turns; no client without tasks
        self._clients: OrderedDict[str, OrderedDict[Task, None]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def clients(self) -> set[str]:
        """The clients that have tasks here."""
        return set(self._clients)

    def put(self, task: Task, *, first: bool = False) -> None:
        """Add a task as the last of its client's, or as the first."""
        tasks = self._clients.setdefault(task.client, OrderedDict())
        tasks[task] = None
        if first:
            tasks.move_to_end(task, last=False)
        self._length += 1

    def take(self) -> Task:
        """Remove and return the next task. `KeyError` if there is none."""
        client, tasks = self._clients.popitem(last=False)
        task, _ = tasks.popitem(last=False)
        if tasks:  # its next turn is after the others'
            self._clients[client] = tasks
        self._length -= 1
        return task

    def discard(self, task: Task) -> bool:
        """Remove a task; returns whether it was here."""
        tasks = self._clients.get(task.client)
        if tasks is None or task not in tasks:
            return False
        del tasks[task]
        if not tasks:
            del self._clients[task.client]
        self._length -= 1
        return True
