"""Measurement: servers and players are started once, and then their waves alternate."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.chaos.cluster import free_ports
from benchmarks.measuring import Timing, make_scripts
from benchmarks.peers.environments import NotMeasured, make_environment, reason
from benchmarks.peers.player import Episode, Workload, write_workload
from benchmarks.peers.processes import Worker
from benchmarks.peers.report import Peer, Report, Wave, order, summary
from env_server.questions import QuestionBank
from shared.console import failure
from shared.errors import ServerStartError
from shared.server_process import ServerProcess, running_server

WARM_UP = 1  # waves that are not measured: imports, connections, caches of questions
SAME_REWARD = 1e-6  # sums of floats in another order
Log = Callable[[str], None]


def workload_of(data: Path, episodes: int, steps: int) -> Workload:
    """Return the workload: episodes of different questions, each of `steps` actions."""
    scripts = make_scripts(QuestionBank.load(data), episodes, steps)
    return Workload(data, [Episode(one.question_id, one.actions) for one in scripts])


class Measurement:
    """The processes of the peers that can be measured, and their waves. Use `with`."""

    def __init__(self, workload: Workload, cache: Path, log: Log) -> None:
        self.waves: dict[str, list[Wave]] = {}
        self.absent: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self._workload, self._cache, self._log = workload, cache, log
        self._players: dict[str, Worker] = {}
        self._played_on: dict[str, ServerProcess | None] = {}
        self._servers: dict[str, ServerProcess] = {}
        self._reward: float | None = None  # of a wave, whoever plays it
        self._stack = ExitStack()

    def __enter__(self) -> "Measurement":
        with ExitStack() as stack:
            scratch = tempfile.TemporaryDirectory(prefix="sqlenv-peers-")
            self._folder = Path(stack.enter_context(scratch))
            write_workload(self._folder / "workload.json", self._workload)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def start(self, peer: Peer) -> None:
        """Start a peer's player, and its server if it is not running; record why if that fails."""
        self._log(f"starting {peer.title}")
        try:
            python = self._python(peer)
            server = self._server(peer, python)
            player = Worker(
                python,
                "player:opened",
                peer.packages,
                peer.player,
                str(self._folder / "workload.json"),
                server.url if server else "",
                log=self._folder / f"{peer.name}.log",
            )
            self._players[peer.name] = self._stack.enter_context(player)
            self.versions[peer.name] = player.versions
            self._played_on[peer.name] = server
        except (NotMeasured, ServerStartError) as error:
            self._drop(peer.name, reason(str(error)))

    def play(self, name: str, *, measured: bool = True) -> None:
        """Play a wave of a peer, unless it was dropped; one that fails is.

        Ends the benchmark if the wave earned another reward than the first wave of all.
        """
        if name in self.absent:
            return
        player, server = self._players[name], self._played_on[name]
        client_time, server_time = Timing(name), Timing(name)
        steps = sum(len(one.actions) for one in self._workload.episodes)
        server_cpu_s = server.cpu_s if server else lambda: 0.0
        try:
            with client_time.adding(steps, player.cpu_s), server_time.adding(steps, server_cpu_s):
                reward = float(player.ask(None))
        except NotMeasured as error:
            self._drop(name, str(error))
            return
        self._reward = reward if self._reward is None else self._reward
        if abs(reward - self._reward) > SAME_REWARD:
            raise failure(
                f"not the same episodes: a wave of {name} earned {reward}, the first one "
                f"{self._reward}"
            )
        if measured:
            self.waves.setdefault(name, []).append(Wave(client_time, server_time))

    def _python(self, peer: Peer) -> Path:
        if peer.environment is None:
            return Path(sys.executable)
        return make_environment(peer.environment, self._cache)

    def _server(self, peer: Peer, python: Path) -> ServerProcess | None:
        if peer.server is not None and peer.server not in self._servers:
            data, sessions = self._workload.data, str(len(self._workload.episodes))
            if peer.server == "openenv":
                command = (str(python), "-m", "benchmarks.peers.openenv_server")
                [port] = free_ports(1)
                started = running_server(data, "--sessions", sessions, port=port, command=command)
            else:  # the waves repeat their queries, which must all run
                started = running_server(data, "--workers", "1", result_cache_bytes=0)
            self._servers[peer.server] = self._stack.enter_context(started)
        return self._servers[peer.server] if peer.server else None

    def _drop(self, name: str, why: str) -> None:
        self.absent[name] = why
        self.waves.pop(name, None)
        if name in self._players:
            self._players[name].kill()
        self._log(f"not measured, {name}: {why}")


def measure(
    peers: Sequence[Peer], workload: Workload, waves: int, cache: Path, log: Log
) -> list[Report]:
    """Return a line for each peer: its costs, or why it was not measured."""
    names = [peer.name for peer in peers]
    with Measurement(workload, cache, log) as run:
        for peer in peers:
            run.start(peer)
        for name in order(names, WARM_UP):
            run.play(name, measured=False)
        for name in order(names, waves):
            log(f"playing {name}")
            run.play(name)
    lines = []
    for peer in peers:
        line: Report = {"name": peer.name, "title": peer.title, "base": peer.base}
        why = run.absent.get(peer.name)
        if why is None and peer.base in run.absent:
            why = f"{peer.base}, its base, was not measured: {run.absent[peer.base]}"
        try:
            if why is not None:
                raise NotMeasured(why)
            line |= summary(run.waves[peer.name], run.waves[peer.base])
            line["versions"] = run.versions[peer.name]
        except NotMeasured as error:
            line["not_measured"] = str(error)
        lines.append(line)
    return lines
