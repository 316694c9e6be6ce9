"""The faults: what goes wrong, and when."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Literal

from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.link import State
from shared.server_process import ServerProcess

Kind = Literal["kill", "sleep", "restart", "cut", "silence", "lost_replies", "blackout"]
REPLIES_LOST = 4
RESTART_TIMEOUT_S = 60.0  # requests in flight finish first
# kind -> how often it comes in a round of faults, and the seconds that it lasts
ROUND: dict[Kind, tuple[int, float]] = {
    "kill": (4, 1.0),
    "sleep": (2, 10.0),
    "restart": (2, 0.5),
    "cut": (2, 2.0),
    "silence": (1, 5.0),
    "lost_replies": (2, 0.5),
    "blackout": (1, 0.5),
}


@dataclass(frozen=True)
class Fault:
    """One fault of one server, for `seconds`.

    kill: SIGKILL, then a new process. sleep: SIGSTOP, then SIGCONT. restart: SIGTERM, then a new
    process. cut: its connections are reset, and new ones are not answered. silence: its packets are
    held back. lost_replies: it executes the next few requests, but their replies are lost.
    blackout: every server is killed, then all are started again, this one first.
    """

    kind: Kind
    server: int
    seconds: float

    @contextmanager
    def in_force(self, cluster: Cluster) -> Iterator[None]:
        """Cause the fault for the block, then end it and wait until the server is ready again."""
        server, link = cluster.servers[self.server], cluster.links[self.server]
        match self.kind:
            case "kill":
                server.stop(SIGKILL)
                yield
                restart(server)
            case "sleep":
                server.send_signal(SIGSTOP, workers=True)
                yield
                server.send_signal(SIGCONT, workers=True)
            case "restart":
                server.stop(timeout_s=RESTART_TIMEOUT_S)
                yield
                restart(server)
            case "cut" | "silence":
                link.set(State.CUT if self.kind == "cut" else State.SILENT)
                yield
                link.set(State.OPEN)
            case "lost_replies":
                link.lose_replies(REPLIES_LOST)
                yield
                link.lose_replies(0)
            case "blackout":
                for each in cluster.servers:
                    each.stop(SIGKILL)
                yield
                restart(*cluster.servers[self.server :], *cluster.servers[: self.server])


def restart(*servers: ServerProcess) -> None:
    """Start each server again and wait until it is ready, one after another."""
    for server in servers:
        server.start()
        server.wait_ready()


def plan(count: int, servers: int, seed: int = 0) -> list[Fault]:
    """Return `count` faults of `servers` servers, in rounds of `ROUND`, each in random order."""
    stream, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        kinds = [kind for kind, (times, _) in ROUND.items() for _ in range(times)]
        stream.shuffle(kinds)
        faults += [Fault(kind, stream.randrange(servers), ROUND[kind][1]) for kind in kinds]
    return faults[:count]


class Chaos:
    """Runs faults one after another, in a thread; number i after (i + 1) x `every` answered steps.

    The player calls `pass_step` with the steps answered so far before each further one. The call
    waits until every fault that is due has begun, so all of them happen during play, however fast
    the machine is. Use it inside `with`: its end waits for the last fault to end, and raises what
    went wrong in the faults themselves.
    """

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], every: int) -> None:
        self.faults, self.done = list(faults), Counter[str]()
        self._cluster, self._every = cluster, every
        self._answered = self._begun = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)

    def __enter__(self) -> "Chaos":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._set(stopping=True)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def pass_step(self, answered: int) -> None:
        """Record the number of steps answered so far, and wait for the faults that are due."""
        self._set(answered=max(self._answered, answered))
        due = min(len(self.faults), answered // self._every)
        with self._changed:
            self._changed.wait_for(lambda: self._begun >= due or self._error is not None)
        if self._error is not None:
            raise self._error

    def _set(self, **fields: object) -> None:
        with self._changed:
            for name, value in fields.items():
                setattr(self, f"_{name}", value)
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for index, fault in enumerate(self.faults):
                due = (index + 1) * self._every
                with self._changed:
                    while self._answered < due:
                        if self._stopping:
                            return
                        self._changed.wait()
                with fault.in_force(self._cluster):
                    self.done[fault.kind] += 1
                    self._set(begun=index + 1)
                    time.sleep(fault.seconds)
        except BaseException as error:
            self._set(error=error)
