"""The faults: what goes wrong, and when."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Literal

from shared.server_process import ServerProcess
from tests.chaos.cluster import Cluster
from tests.chaos.link import State

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
    """Causes faults one after another: number i after (i + 1) x `every` answered steps.

    The player calls `pass_step` with the steps answered so far before each further one. It causes
    every fault that is due, so all of them happen during play, however fast the machine is. Use it
    inside `with`: its end waits for the last fault to end. Both raise what went wrong in a fault.
    """

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], every: int) -> None:
        self.faults, self.done = list(faults), Counter[str]()
        self._cluster, self._every = cluster, every
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "chaos")
        self._end: Future[None] | None = None  # of the last fault

    def __enter__(self) -> "Chaos":
        return self

    def __exit__(self, *error: object) -> None:
        with self._thread:
            self._wait_for_end()

    def pass_step(self, answered: int) -> None:
        """Cause the faults that are due after `answered` steps, each once the one before ended."""
        with self._lock:
            while self.done.total() < min(len(self.faults), answered // self._every):
                self._wait_for_end()
                fault, stack = self.faults[self.done.total()], ExitStack()
                stack.enter_context(fault.in_force(self._cluster))
                self.done[fault.kind] += 1
                self._end = self._thread.submit(self._end_after, fault.seconds, stack)

    def _wait_for_end(self) -> None:
        if self._end is not None:
            self._end.result()

    @staticmethod
    def _end_after(seconds: float, fault: ExitStack) -> None:
        time.sleep(seconds)
        fault.close()
