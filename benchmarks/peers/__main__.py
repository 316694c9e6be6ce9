"""What a step costs with SQLEnv, and with OpenEnv and TRL, in one harness.

    python -m benchmarks.peers [--peer NAME] [--json PATH]

Every peer plays the same episodes at once: a DESCRIBE, a SAMPLE, look-ups and an ANSWER, of
questions of the shipped data, with rewards, and with SQL in one jailed worker. Actions come from a
script, so no model's cost is in any figure. Resets count. Peers that need packages which SQLEnv
does not have get an environment of their own, made from `requirements/` at the first run. Waves of
all peers alternate, and ratios are between waves of the same number, so that other load on the
machine affects all alike. Linux only (reads /proc).
"""

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, make_scripts
from benchmarks.peers.environments import NotMeasured, Worker, make_environment, reason
from benchmarks.peers.worker import Workload, write_workload
from env_server.questions import QuestionBank
from shared.console import failure, table_console, write_json
from shared.errors import ServerStartError
from shared.server_process import ServerProcess, running_server
from tests.chaos.cluster import free_ports
from trainer.run.console import table

HEADINGS = ("played by", "server", "client", "CPU us/step", "CPU x")
WARM_UP = 1  # waves that are not measured: imports, connections, caches of questions
SAME_REWARD = 1e-6  # sums of floats in another order
CLIENT, LOOP = "sqlenv", "sqlenv-loop"  # SQLEnv's own, with which others are compared
Report = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A way to play the workload: a client or a loop, and the server it plays on."""

    name: str
    title: str
    player: str
    """`module:function` for `worker.py`."""
    server: Literal["sqlenv", "openenv"] = "sqlenv"
    """OpenEnv's server and player run in its own environment."""
    packages: tuple[str, ...] = ()
    """Packages whose versions the report names."""
    base: str = CLIENT
    """The peer that its costs are divided by: a loop has work that a client has not."""


PEERS = (
    Peer(CLIENT, "SQLEnv: client and server", "players.sqlenv:client"),
    Peer(
        "openenv", "OpenEnv: client and server", "players.openenv:client", "openenv", ("openenv",)
    ),
    Peer(LOOP, "SQLEnv: rollout loop and server", "players.sqlenv:loop", base=LOOP),
    Peer(
        "trl", "TRL's environment_factory, SQLEnv's server", "players.trl_loop:tools",
        packages=("trl",), base=LOOP,
    ),
)  # fmt: skip


class Wave(NamedTuple):
    """All episodes of the workload, played once: CPU-seconds of both sides."""

    steps: int
    client_s: float
    server_s: float
    reward: float = 0.0

    @property
    def cpu_s(self) -> float:
        return self.client_s + self.server_s


def start(
    peer: Peer, workload: Workload, folder: Path, stack: ExitStack
) -> tuple[Worker, ServerProcess]:
    """Start a peer's player and server until `stack` closes, or raise `NotMeasured`."""
    python, opened = Path(sys.executable), running_server(workload.data, "--workers", "1")
    if peer.server == "openenv":
        python = make_environment("openenv")
        sessions = ("--sessions", str(len(workload.episodes)))
        command = (str(python), "-m", "benchmarks.peers.openenv_server")
        [port] = free_ports(1)
        opened = running_server(workload.data, *sessions, port=port, command=command)
    try:
        server = stack.enter_context(opened)
    except ServerStartError as error:
        raise NotMeasured(reason(str(error))) from error
    path = folder / "workload.json"
    write_workload(path, workload)
    log = folder / f"{peer.name}.log"
    player = Worker(python, peer.player, peer.packages, str(path), server.url, log=log)
    stack.enter_context(player).start()
    return player, server


def play(player: Worker, server: ServerProcess, steps: int) -> Wave:
    client_s, server_s = player.cpu_s(), server.cpu_s()
    reward = float(player.ask(None))
    return Wave(steps, player.cpu_s() - client_s, server.cpu_s() - server_s, reward)


def check_same(name: str, wave: Wave, first: Wave) -> None:
    """End the benchmark if a wave earned another reward than the first one, whoever played it."""
    if abs(wave.reward - first.reward) > SAME_REWARD:
        earned = f"a wave of {name} earned {wave.reward}, the first one {first.reward}"
        raise failure(f"not the same episodes: {earned}")


def measure(peers: Sequence[Peer], workload: Workload, waves: int) -> list[Report]:
    """Return a line for each peer: its costs, or why it was not measured."""
    steps = sum(len(one.actions) for one in workload.episodes)
    lines: dict[str, Report] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sqlenv-peers-")))
        running = {}
        for peer in peers:
            print(f"starting {peer.title}", file=sys.stderr)
            lines[peer.name] = {"name": peer.name, "title": peer.title, "base": peer.base}
            try:
                running[peer.name] = start(peer, workload, folder, stack)
            except NotMeasured as error:
                lines[peer.name]["not_measured"] = str(error)
        played: dict[str, list[Wave]] = {name: [] for name in running}
        first: Wave | None = None
        for name in order([*running], WARM_UP + waves):
            print(f"playing {name}", file=sys.stderr)
            try:
                wave = play(*running[name], steps)
            except NotMeasured as error:
                raise failure(f"a wave of {name} failed: {error}") from error
            first = first or wave
            check_same(name, wave, first)
            played[name].append(wave)
    for peer in peers:
        if peer.name in running:
            lines[peer.name] |= summary(
                *(played[name][WARM_UP:] for name in (peer.name, peer.base))
            )
            lines[peer.name]["versions"] = running[peer.name][0].versions
    return [*lines.values()]


def order(names: Sequence[str], waves: int) -> list[str]:
    """Return who plays when: each name once per wave, every second wave backwards, so that nobody
    always plays right after the same one."""
    return [name for wave in range(waves) for name in (names if wave % 2 == 0 else names[::-1])]


def summary(waves: Sequence[Wave], base: Sequence[Wave]) -> Report:
    """Return the costs of a peer per step, as multiples of its base's, too. Ends the benchmark if a
    wave was too short for the clock of CPU time."""
    if not all(wave.cpu_s > 0 for wave in (*waves, *base)):
        raise failure("too few steps to measure CPU time: raise --episodes or --steps")
    steps = sum(wave.steps for wave in waves)
    client = 1e6 * sum(wave.client_s for wave in waves) / steps
    server = 1e6 * sum(wave.server_s for wave in waves) / steps
    ratios = [wave.cpu_s / first.cpu_s for wave, first in zip(waves, base, strict=True)]
    spread = {"median": median(ratios), "min": min(ratios), "max": max(ratios)}
    return {
        "steps": steps,
        "client_cpu_us": round(client, 1),
        "server_cpu_us": round(server, 1),
        "cpu_us": round(client + server, 1),
        "cpu_ratio": {name: round(value, 2) for name, value in spread.items()},
    }


def row(peer: Report) -> tuple[str, ...]:
    if "not_measured" in peer:
        return (peer["title"], *["-"] * (len(HEADINGS) - 2), "not measured")
    costs = [f"{peer[key]:,.0f}" for key in ("server_cpu_us", "client_cpu_us", "cpu_us")]
    return (peer["title"], *costs, f"{peer['cpu_ratio']['median']:.1f}")


def main(
    peer: Annotated[list[str] | None, typer.Option(help="Peer to measure; repeatable.")] = None,
    data: DataDir = DATA,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes played at once.")] = 64,
    steps: Annotated[int, typer.Option(min=3, max=100, help="Steps per episode.")] = 10,
    waves: Annotated[int, typer.Option(min=1, help="Waves per peer.")] = 10,
    json_path: JsonPath = None,
) -> None:
    """Compare the cost of a step with that of other frameworks."""
    names = chosen(peer, [one.name for one in PEERS], "peer")
    bases = {one.base for one in PEERS if one.name in names}
    wanted = [one for one in PEERS if one.name in {*names, *bases}]
    workload = Workload(data, make_scripts(QuestionBank.load(data), episodes, steps))
    found = measure(wanted, workload, waves)
    report: Report = {"episodes": episodes, "steps_per_episode": steps, "waves": waves}
    report |= {"cpus": os.cpu_count(), "python": platform.python_version(), "peers": found}
    title = f"{episodes} episodes of {steps} steps at once, {waves} waves: CPU time per step"
    table_console().print(table(title, HEADINGS, map(row, found)))
    for one in found:
        if "not_measured" in one:
            print(f"not measured: {one['title']}: {one['not_measured']}")
    write_json(json_path, report)


if __name__ == "__main__":
    typer.run(main)
