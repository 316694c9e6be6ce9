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
    """The running servers and players of peers. Use `with`."""

    def __init__(self, workload: Workload, cache: Path) -> None:
        self.players: dict[str, tuple[Worker, ServerProcess | None]] = {}
        self._workload, self._cache = workload, cache
        self._servers: dict[str, ServerProcess] = {}
        self._reward: float | None = None  # of a wave, whoever plays it
        self._stack = ExitStack()

    def __enter__(self) -> "Measurement":
        scratch = tempfile.TemporaryDirectory(prefix="sqlenv-peers-")
        self._folder = Path(self._stack.enter_context(scratch))
        write_workload(self._folder / "workload.json", self._workload)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def start(self, peer: Peer) -> None:
        """Start a peer's player, and its server if it is not running, or raise `NotMeasured`."""
        python = Path(sys.executable)
        if peer.environment is not None:
            python = make_environment(peer.environment, self._cache)
        try:
            server = self._server(peer, python)
        except ServerStartError as error:
            raise NotMeasured(reason(str(error))) from error
        player = Worker(
            python,
            peer.player,
            peer.packages,
            str(self._folder / "workload.json"),
            server.url if server else "",
            log=self._folder / f"{peer.name}.log",
        )
        self._stack.enter_context(player).start()
        self.players[peer.name] = player, server

    def play(self, name: str) -> Wave:
        """Play a wave; end the benchmark if it fails or earns another reward than the first one."""
        player, server = self.players[name]
        client_time, server_time = Timing(name), Timing(name)
        steps = sum(len(one.actions) for one in self._workload.episodes)
        server_cpu_s = server.cpu_s if server else lambda: 0.0
        try:
            with client_time.adding(steps, player.cpu_s), server_time.adding(steps, server_cpu_s):
                reward = float(player.ask(None))
        except NotMeasured as error:
            raise failure(f"a wave of {name} failed: {error}") from error
        self._reward = reward if self._reward is None else self._reward
        if abs(reward - self._reward) > SAME_REWARD:
            raise failure(
                f"not the same episodes: a wave of {name} earned {reward}, the first one "
                f"{self._reward}"
            )
        return Wave(client_time, server_time)

    def _server(self, peer: Peer, python: Path) -> ServerProcess | None:
        if peer.server is not None and peer.server not in self._servers:
            data, sessions = self._workload.data, str(len(self._workload.episodes))
            if peer.server == "openenv":
                command = (str(python), "-m", "benchmarks.peers.openenv_server")
                [port] = free_ports(1)
                started = running_server(data, "--sessions", sessions, port=port, command=command)
            else:
                started = running_server(data, "--workers", "1")
            self._servers[peer.server] = self._stack.enter_context(started)
        return self._servers[peer.server] if peer.server else None


def measure(
    peers: Sequence[Peer], workload: Workload, waves: int, cache: Path, log: Log
) -> list[Report]:
    """Return a line for each peer: its costs, or why it was not measured."""
    lines: dict[str, Report] = {}
    with Measurement(workload, cache) as run:
        for peer in peers:
            log(f"starting {peer.title}")
            lines[peer.name] = {"name": peer.name, "title": peer.title, "base": peer.base}
            try:
                run.start(peer)
            except NotMeasured as error:
                lines[peer.name]["not_measured"] = str(error)
        played: dict[str, list[Wave]] = {name: [] for name in run.players}
        for number, name in enumerate(order([*played], WARM_UP + waves)):
            log(f"playing {name}")
            wave = run.play(name)
            if number >= WARM_UP * len(played):
                played[name].append(wave)
        for peer in peers:
            if peer.name in played:
                lines[peer.name] |= summary(played[peer.name], played[peer.base])
                lines[peer.name]["versions"] = run.players[peer.name][0].versions
    return [*lines.values()]
