"""How many environment servers does a load need? Measures what that depends on, and does the sum.

    python -m benchmarks.sizing [--episodes 4096 --turn-s 2.0] [--data DIR] [--json PATH]

Against a real server: CPU time of a step taken and of a step replayed (the server and its SQL
workers), memory of a server that holds nothing, of an unfinished and of a finished episode, and CPU
time of the gateway where HAProxy is installed. CPU times hold on a busy machine where rates do not;
one core gives 1 / CPU time. docs/scaling-ops.md has the sum in words. Linux only (reads /proc).
"""

import asyncio
import json
import math
import os
import platform
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.chaos.gateway import missing, running_gateway
from benchmarks.http_steps import (
    STEPS,
    Connection,
    Episode,
    connect,
    make_episodes,
    play_batches,
    play_over_http,
    play_singles,
    step_body,
)
from env_server.questions import QuestionBank
from shared.server_process import ServerProcess, running_server, session_cpu_s, session_pids

ROOT = Path(__file__).resolve().parents[1]
BATCH = 250  # episodes that the measurement of memory plays at a time
SHOWN_STEPS = 4  # that an unfinished episode has behind it when its memory is taken


@dataclass(frozen=True)
class Inputs:
    """What one server costs."""

    step_cpu_us: float  # of the server and its SQL workers, in batches of 64
    single_cpu_us: float  # the same, one step a request, 64 in flight
    replay_cpu_us: float  # of a step replayed to rebuild an episode, its share of the reset with it
    base_mib: float  # of the server and its SQL workers, holding nothing
    episode_kib: float  # of an unfinished episode
    finished_kib: float  # of a finished one, held for repeats
    gateway_cpu_us: float | None  # of HAProxy, a request; None where it is not installed

    @property
    def steps_per_s(self) -> float:
        """Steps a second that one core gives."""
        return 1e6 / self.step_cpu_us


@dataclass(frozen=True)
class Plan:
    """`servers`, one core each, for episodes that are played together, a step each every `turn_s`
    seconds."""

    episodes: int
    turn_s: float
    waiting: float  # the share of a turn that the trainer may wait for the servers
    servers: int  # the spare one among them
    wait_s: float  # a turn, with all of them
    rebuild_s: float  # for which the others replay the episodes of one that is lost
    memory_mib: float  # of one, with a lost one's episodes on the others


def plan(
    inputs: Inputs, episodes: int, turn_s: float, waiting: float, steps: int, finished_capacity: int
) -> Plan:
    """All steps of a turn arrive at once, so a turn waits `episodes / (servers x steps_per_s)`; one
    server is spare.

    `steps` are those that an episode of a lost server has behind it.
    """
    needed = max(1, math.ceil(episodes / (inputs.steps_per_s * turn_s * waiting)))
    servers = needed + 1
    each = math.ceil(episodes / needed)
    kib = each * inputs.episode_kib + finished_capacity * inputs.finished_kib
    return Plan(
        episodes=episodes,
        turn_s=turn_s,
        waiting=waiting,
        servers=servers,
        wait_s=episodes / (servers * inputs.steps_per_s),
        rebuild_s=episodes / servers * steps * inputs.replay_cpu_us / 1e6 / needed,
        memory_mib=inputs.base_mib + kib / 1024,
    )


# -- measuring
# ---------------------------------------------------------------------------------------------------------


def memory_kib(session: int) -> int:
    """Return the memory of a session's processes; what they share counts once."""
    total = 0
    for pid in session_pids(session):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total


def server(data: Path, workers: int) -> AbstractContextManager[ServerProcess]:
    return running_server(
        data, "--workers", str(workers), capacity=1_000_000, finished_capacity=1_000_000
    )


async def cpu_of_steps(
    port: int, pid: int, episodes: list[Episode], seconds: float
) -> tuple[float, float]:
    """CPU us a step: in batches of 64, and one a request."""
    connections = await connect(port, 64)
    batches = await play_over_http(
        "sizing batches",
        lambda: session_cpu_s(pid),
        connections[:1],
        episodes,
        seconds,
        play_batches,
    )
    singles = await play_over_http(
        "sizing singles", lambda: session_cpu_s(pid), connections, episodes, seconds, play_singles
    )
    return batches.cpu_us, singles.cpu_us


async def cpu_of_replays(port: int, pid: int, episodes: list[Episode], seconds: float) -> float:
    """CPU us a replayed step."""
    [connection] = await connect(port, 1)
    steps, turn, began, cpu_began = 0, 0, time.perf_counter(), session_cpu_s(pid)
    while time.perf_counter() - began < seconds:
        actions = [episode.actions[:-1] for episode in episodes]  # those of an unfinished episode
        await start(connection, f"replay-{turn}", episodes, actions)
        steps += sum(map(len, actions))
        turn += 1
    return (session_cpu_s(pid) - cpu_began) / steps * 1e6


async def start(
    connection: Connection, name: str, episodes: list[Episode], actions: list[list[str]]
) -> None:
    resets = [
        {
            "episode_id": f"{name}-{n}",
            "question_id": one.question_id,
            "step_budget": STEPS,
            "actions": done,
        }
        for n, (one, done) in enumerate(zip(episodes, actions, strict=True))
    ]
    await connection.post("/reset_batch", json.dumps({"resets": resets}).encode())


async def hold(port: int, pid: int, episodes: list[Episode], count: int, finish: bool) -> float:
    """KiB of an episode: `count` of them begin, take `SHOWN_STEPS` steps and, with `finish`,
    answer."""
    [connection] = await connect(port, 1)
    before = 0
    for first in range(-BATCH, count, BATCH):
        # after a batch that opens connections to databases and grows what is never given back
        if first == 0:
            before = memory_kib(pid)
        some = [episodes[n % len(episodes)] for n in range(BATCH)]
        name = f"hold{first}"
        await start(connection, name, some, [[] for _ in some])
        for step in range(SHOWN_STEPS):
            items = [step_body(name, n, step, one.actions[step]) for n, one in enumerate(some)]
            await connection.post("/step_batch", b'{"steps":[%b]}' % b",".join(items))
        if finish:
            items = [step_body(name, n, SHOWN_STEPS, one.actions[-1]) for n, one in enumerate(some)]
            await connection.post("/step_batch", b'{"steps":[%b]}' % b",".join(items))
    return (memory_kib(pid) - before) / count


async def cpu_of_requests(port: int, pid: int, episodes: list[Episode], seconds: float) -> float:
    """CPU us a request of a gateway that listens on `port`."""
    row = await play_over_http(
        "sizing gateway",
        lambda: session_cpu_s(pid),
        await connect(port, 64),
        episodes,
        seconds,
        play_singles,
    )
    return row.cpu_us


def measure(data: Path, workers: int, seconds: float, count: int) -> Inputs:
    episodes = make_episodes(QuestionBank.load(data))
    with server(data, workers) as one:
        pid = one.pid
        base_mib = memory_kib(pid) / 1024
        step_us, single_us = asyncio.run(cpu_of_steps(one.port, pid, episodes, seconds))
        replay_us = asyncio.run(cpu_of_replays(one.port, pid, episodes, seconds))
        gateway_us = None
        if missing() is None:
            with running_gateway([one.url]) as gateway:
                port, gateway_pid = int(gateway.url.rpartition(":")[2]), gateway.process.pid
                gateway_us = asyncio.run(cpu_of_requests(port, gateway_pid, episodes, seconds))
    kib = []
    for finish in (False, True):
        with server(data, workers) as one:
            kib.append(asyncio.run(hold(one.port, one.pid, episodes, count, finish)))
    return Inputs(step_us, single_us, replay_us, base_mib, *kib, gateway_us)


# -- the command
# -------------------------------------------------------------------------------------------------------


def show(inputs: Inputs, plans: list[Plan], console: Console) -> None:
    found = Table("input", "measured", title="What one server costs")
    found.add_row("CPU of a step, in batches of 64", f"{inputs.step_cpu_us:.0f} us")
    found.add_row("steps/s that one core gives", f"{inputs.steps_per_s:,.0f}")
    found.add_row("CPU of a step, one a request", f"{inputs.single_cpu_us:.0f} us")
    found.add_row("CPU of a step replayed", f"{inputs.replay_cpu_us:.0f} us")
    found.add_row("memory, holding nothing", f"{inputs.base_mib:.0f} MiB")
    found.add_row("memory of an unfinished episode", f"{inputs.episode_kib:.1f} KiB")
    found.add_row("memory of a finished one", f"{inputs.finished_kib:.1f} KiB")
    gateway = (
        "no HAProxy here" if inputs.gateway_cpu_us is None else f"{inputs.gateway_cpu_us:.0f} us"
    )
    found.add_row("CPU of the gateway, a request", gateway)
    console.print(found)
    table = Table(
        "episodes", "a turn", "may wait", "servers", "then waits", "rebuilds a lost one in", "memory of one",
        title="Servers of one core each, one of them spare",
    )  # fmt: skip
    for one in plans:
        table.add_row(
            f"{one.episodes:,}", f"{one.turn_s:g} s", f"{one.waiting:.0%}", str(one.servers), f"{one.wait_s:.2f} s",
            f"{one.rebuild_s:.2f} s", f"{one.memory_mib:.0f} MiB",
        )  # fmt: skip
    console.print(table)


def main(
    episodes: Annotated[
        list[int] | None, typer.Option(help="Episodes in flight; may be repeated.")
    ] = None,
    turn_s: Annotated[
        float, typer.Option(min=0.001, help="Seconds in which all of them get their next action.")
    ] = 2.0,
    waiting: Annotated[
        float, typer.Option(min=0.001, help="Share of a turn that may be spent waiting.")
    ] = 0.1,
    steps: Annotated[
        int, typer.Option(help="Steps that an episode has behind it when its server is lost.")
    ] = 5,
    finished_capacity: Annotated[int, typer.Option(help="SQLENV_FINISHED_CAPACITY.")] = 10_000,
    data: Annotated[Path, typer.Option(help="Data directory.")] = ROOT / "data",
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 2,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each CPU time.")] = 4.0,
    held: Annotated[
        int, typer.Option(help="Episodes to hold when their memory is measured.")
    ] = 5_000,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers here.")
    ] = None,
) -> None:
    """What a server costs here, and how many of them a load needs."""
    inputs = measure(data, workers, seconds, held)
    wanted = episodes or [64, 1024, 4096, 16384]
    plans = [plan(inputs, one, turn_s, waiting, steps, finished_capacity) for one in wanted]
    show(inputs, plans, Console())
    if json_path is not None:
        machine = {
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        report = {"inputs": asdict(inputs), "plans": [asdict(one) for one in plans], **machine}
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
