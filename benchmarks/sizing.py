"""How many environment servers a load needs: measures what that depends on, and computes the plan.

    python -m benchmarks.sizing [--episodes 4096 --turn-s 2.0] [--data DIR] [--json PATH]

Measures a real server: the CPU time of a step taken and of a step replayed (including SQL workers),
the memory of a server without episodes, of an unfinished and of a finished episode, and the CPU
time of the gateway if HAProxy is installed. CPU times, unlike rates, hold on a busy machine.
docs/scaling-ops.md explains the plan. Linux only (reads /proc).
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
    Script,
    connect,
    make_scripts,
    play_batches,
    play_over_http,
    play_singles,
)
from env_server.questions import QuestionBank
from shared.server_process import ServerProcess, running_server, session_cpu_s, session_pids

ROOT = Path(__file__).resolve().parents[1]
LOADS = [64, 1024, 4096, 16384]
BATCH = 250  # episodes played at a time while memory is measured
STEPS_TAKEN = 4  # by an unfinished episode when its memory is measured


@dataclass(frozen=True)
class Inputs:
    """What one server costs."""

    step_cpu_us: float  # of the server and its SQL workers, in batches of 64
    single_cpu_us: float  # the same, one step per request, 64 in flight
    replay_cpu_us: float  # of a step replayed to rebuild an episode, with its share of the reset
    base_mib: float  # of the server and its SQL workers, without episodes
    episode_kib: float  # of an unfinished episode
    finished_kib: float  # of a finished one, kept for repeated requests
    gateway_cpu_us: float | None  # of HAProxy per request; None if it is not installed

    @property
    def steps_per_s(self) -> float:
        """Steps per second of one core."""
        return 1e6 / self.step_cpu_us


@dataclass(frozen=True)
class Plan:
    """One-core servers for episodes played together, with one step each per `turn_s` seconds."""

    episodes: int
    turn_s: float
    waiting: float  # the share of a turn that the trainer may wait for the servers
    servers: int  # including a spare
    wait_s: float  # per turn, with all of them
    rebuild_s: float  # until the others have replayed the episodes of a lost server
    memory_mib: float  # per server, with a lost server's episodes on the others


def plan(
    inputs: Inputs, episodes: int, turn_s: float, waiting: float, steps: int, finished_capacity: int
) -> Plan:
    """Return the plan: all steps of a turn arrive together, so it waits `episodes / (servers x
    steps_per_s)`.

    `steps` are those that the episodes of a lost server have taken.
    """
    needed = max(1, math.ceil(episodes / (inputs.steps_per_s * turn_s * waiting)))
    servers = needed + 1
    kib = math.ceil(episodes / needed) * inputs.episode_kib
    return Plan(
        episodes=episodes,
        turn_s=turn_s,
        waiting=waiting,
        servers=servers,
        wait_s=episodes / (servers * inputs.steps_per_s),
        rebuild_s=episodes / servers * steps * inputs.replay_cpu_us / 1e6 / needed,
        memory_mib=inputs.base_mib + (kib + finished_capacity * inputs.finished_kib) / 1024,
    )


def memory_kib(session: int) -> int:
    """Return the memory of a session's processes, counting shared pages once."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in session_pids(session)]
    lines = [line for rollup in rollups for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(int(line.split()[1]) for line in lines)


async def cpu_of_replays(server: ServerProcess, scripts: list[Script], seconds: float) -> float:
    """Return the CPU us per replayed step."""
    [connection] = await connect(server.port, 1)
    actions = [script.actions[:-1] for script in scripts]  # those of an unfinished episode
    steps, started, cpu_started = 0, time.perf_counter(), server.cpu_s()
    while time.perf_counter() - started < seconds:
        await connection.reset(f"replay-{steps}", scripts, actions)
        steps += sum(map(len, actions))
    return (server.cpu_s() - cpu_started) / steps * 1e6


async def memory_per_episode(
    server: ServerProcess, scripts: list[Script], count: int, finish: bool
) -> float:
    """Return the KiB per episode of `count` that took `STEPS_TAKEN` steps and may have finished."""
    [connection] = await connect(server.port, 1)
    before, pid = 0, server.pid or 0
    # the first batch opens connections to databases and grows what is never given back
    for first in range(-BATCH, count, BATCH):
        if first == 0:
            before = memory_kib(pid)
        batch = [scripts[number % len(scripts)] for number in range(BATCH)]
        name = f"memory{first}"
        await connection.reset(name, batch)
        for step in [*range(STEPS_TAKEN), -1][: STEPS_TAKEN + finish]:
            actions = {number: script.actions[step] for number, script in enumerate(batch)}
            await connection.step(name, STEPS_TAKEN if step < 0 else step, actions)
    return (memory_kib(pid) - before) / count


def measure(data: Path, workers: int, seconds: float, count: int) -> Inputs:
    """Measure what one server costs. `count` episodes are kept to measure their memory."""
    scripts = make_scripts(QuestionBank.load(data))

    def running() -> AbstractContextManager[ServerProcess]:
        options = ("--workers", str(workers), "--capacity", "1000000")
        return running_server(data, *options, finished_capacity=1_000_000)

    async def cpu_us(port: int, pid: int, connections: int, batches: bool) -> float:
        play = play_batches if batches else play_singles
        timing = await play_over_http(
            f"sizing {connections} {batches}",
            lambda: session_cpu_s(pid),
            await connect(port, connections),
            scripts,
            seconds,
            play,
        )
        return timing.cpu_us

    with running() as server:
        assert server.pid is not None
        base_mib = memory_kib(server.pid) / 1024
        step_us = asyncio.run(cpu_us(server.port, server.pid, 1, batches=True))
        single_us = asyncio.run(cpu_us(server.port, server.pid, 64, batches=False))
        replay_us = asyncio.run(cpu_of_replays(server, scripts, seconds))
        gateway_us = None
        if missing() is None:
            with running_gateway([server.url]) as gateway:
                port = int(gateway.url.rpartition(":")[2])
                gateway_us = asyncio.run(cpu_us(port, gateway.process.pid, 64, batches=False))

    def memory(finish: bool) -> float:
        with running() as server:
            return asyncio.run(memory_per_episode(server, scripts, count, finish))

    kib = memory(finish=False), memory(finish=True)
    return Inputs(step_us, single_us, replay_us, base_mib, *kib, gateway_us)


def show(inputs: Inputs, plans: list[Plan], console: Console) -> None:
    """Print the inputs and the plans as tables."""
    gateway = inputs.gateway_cpu_us
    table = Table("input", "measured", title="What one server costs")
    for name, measured in {
        "CPU per step, in batches of 64": f"{inputs.step_cpu_us:.0f} us",
        "steps/s per core": f"{inputs.steps_per_s:,.0f}",
        "CPU per step, one per request": f"{inputs.single_cpu_us:.0f} us",
        "CPU per replayed step": f"{inputs.replay_cpu_us:.0f} us",
        "memory without episodes": f"{inputs.base_mib:.0f} MiB",
        "memory per unfinished episode": f"{inputs.episode_kib:.1f} KiB",
        "memory per finished episode": f"{inputs.finished_kib:.1f} KiB",
        "CPU of the gateway per request": "no HAProxy" if gateway is None else f"{gateway:.0f} us",
    }.items():
        table.add_row(name, measured)
    console.print(table)
    columns = ("episodes", "turn", "may wait", "servers", "waits", "rebuilds in", "memory each")
    table = Table(*columns, title="One-core servers, including a spare")
    for one in plans:
        times = f"{one.wait_s:.2f} s", f"{one.rebuild_s:.2f} s", f"{one.memory_mib:.0f} MiB"
        load = f"{one.episodes:,}", f"{one.turn_s:g} s", f"{one.waiting:.0%}"
        table.add_row(*load, str(one.servers), *times)
    console.print(table)


def main(
    episodes: Annotated[list[int], typer.Option(help="In flight; repeatable.")] = LOADS,
    turn_s: Annotated[float, typer.Option(min=0.001, help="Seconds per turn.")] = 2.0,
    waiting: Annotated[float, typer.Option(min=0.001, help="Share of a turn to wait.")] = 0.1,
    steps: Annotated[int, typer.Option(help="Steps taken when a server is lost.")] = 5,
    finished_capacity: Annotated[int, typer.Option(help="SQLENV_FINISHED_CAPACITY.")] = 10_000,
    data: Annotated[Path, typer.Option(help="Data directory.")] = ROOT / "data",
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 2,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each CPU time.")] = 4.0,
    held: Annotated[int, typer.Option(help="Episodes whose memory is measured.")] = 5_000,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write JSON here.")] = None,
) -> None:
    """Measure what a server costs here, and compute how many of them a load needs."""
    inputs = measure(data, workers, seconds, held)
    plans = [plan(inputs, load, turn_s, waiting, steps, finished_capacity) for load in episodes]
    show(inputs, plans, Console())
    if json_path is not None:
        report = {
            "inputs": asdict(inputs),
            "plans": [asdict(one) for one in plans],
            "cpus": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
