"""What goes wrong, and when: a list of faults, each due once so many steps were answered."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.link import State

Kind = Literal["kill", "sleep", "restart", "cut", "silence", "lost_replies", "blackout"]
REPLIES_LOST = 4
# How often each comes in a round of faults, and for how many seconds it lasts. A sleeper sleeps for
# 10 s.
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

    kill: SIGKILL, and a new process after that time. sleep: SIGSTOP, then SIGCONT. restart:
    SIGTERM, and a new process. cut: its connections are reset and no other is answered. silence:
    its packets are held back. lost_replies: it does what it is asked, and the replies to the next
    few requests are lost. blackout: every server is killed, and started again, this one first.
    """

    kind: Kind
    server: int
    seconds: float

    def begin(self, cluster: Cluster) -> None:
        match self.kind:
            case "kill":
                cluster.kill(self.server)
            case "sleep":
                cluster.stop(self.server)
            case "restart":
                cluster.shut_down(self.server)
            case "cut":
                cluster.link(self.server, State.CUT)
            case "silence":
                cluster.link(self.server, State.SILENT)
            case "lost_replies":
                cluster.lose_replies(self.server, REPLIES_LOST)
            case "blackout":
                for index in range(len(cluster)):
                    cluster.kill(index)

    def end(self, cluster: Cluster) -> None:
        match self.kind:
            case "kill" | "restart":
                cluster.start(self.server)
            case "sleep":
                cluster.wake(self.server)
            case "cut" | "silence":
                cluster.link(self.server, State.OPEN)
            case "lost_replies":
                cluster.lose_replies(self.server, 0)
            case "blackout":
                for offset in range(len(cluster)):
                    cluster.start((self.server + offset) % len(cluster))


def plan(count: int, servers: int, seed: int = 0) -> list[Fault]:
    """`count` faults of `servers` servers, in rounds of `ROUND`, each round in an order of its own."""
    stream, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        kinds = [kind for kind, (times, _) in ROUND.items() for _ in range(times)]
        stream.shuffle(kinds)
        faults += [Fault(kind, stream.randrange(servers), ROUND[kind][1]) for kind in kinds]
    return faults[:count]


class Chaos:
    """Does the faults one after another, each when it is due; fault i is due at (i + 1) x `every`
    answered steps.

    The player calls `pass_step` with the steps answered so far before each further one: it waits
    there for a fault that is due and has not begun, so that all of them happen during play, however
    fast or slow the machine. Use it inside `with`, whose end waits for the last fault to end and
    raises what went wrong in the faults themselves.
    """

    def __init__(self, cluster: Cluster, faults: Sequence[Fault], every: int) -> None:
        self.faults, self.done = list(faults), Counter[str]()
        self._cluster, self._every = cluster, every
        self._answered = 0
        self._begun = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)

    def __enter__(self) -> "Chaos":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def may_pass(self, answered: int) -> bool:
        """Whether `pass_step(answered)` would return at once."""
        return self._begun >= min(len(self.faults), answered // self._every)

    def note(self, answered: int) -> None:
        """So many steps were answered by now."""
        with self._changed:
            self._answered = max(self._answered, answered)
            self._changed.notify_all()

    def pass_step(self, answered: int) -> None:
        self.note(answered)
        with self._changed:
            self._changed.wait_for(lambda: self.may_pass(answered) or self._error is not None)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for index, fault in enumerate(self.faults):
                if not self._await(lambda due=(index + 1) * self._every: self._answered >= due):  # type: ignore[misc]
                    return
                fault.begin(self._cluster)
                self.done[fault.kind] += 1
                try:
                    with self._changed:
                        self._begun += 1
                        self._changed.notify_all()
                    time.sleep(fault.seconds)
                finally:
                    fault.end(self._cluster)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _await(self, condition: Callable[[], bool]) -> bool:
        """False where the play ended before."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._stopping)
            return condition()
