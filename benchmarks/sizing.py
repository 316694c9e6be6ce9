"""How many environment servers a load needs: measures what that depends on, and computes the plan.

    python -m benchmarks.sizing [--episodes 4096 --turn-s 2.0] [--data DIR] [--json PATH]

Measures a real server: the CPU time of a step taken and of a step replayed (including SQL workers),
the memory of a server without episodes, of an unfinished and of a finished episode, and the CPU
time of the gateway if HAProxy is installed. CPU times, unlike rates, hold on a busy machine.
docs/scaling-ops.md explains the plan. Linux only (reads /proc).
"""

import asyncio
import itertools
import math
import os
import platform
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.chaos.gateway import missing, running_gateway
from benchmarks.http_steps import SCRIPTS, STEPS, Connection, connect, play_over_http
from benchmarks.measuring import (
    DATA,
    DataDir,
    JsonPath,
    Script,
    Timing,
    make_scripts,
    memory_mib,
    print_table,
)
from env_server.questions import QuestionBank
from env_server.settings import Settings
from shared.console import percent, write_json
from shared.server_process import ServerProcess, running_server, session_cpu_s

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
    memory_mib: float  # per server, with a lost server's episodes and a full cache of results


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
        memory_mib=inputs.base_mib
        + (kib + finished_capacity * inputs.finished_kib) / 1024
        + Settings().result_cache_bytes / 2**20,
    )


async def cpu_us_of_replays(server: ServerProcess, scripts: list[Script], seconds: float) -> float:
    """Return the CPU us per replayed step."""
    connection, timing = await connect(server.port), Timing("replays")
    unfinished = slice(STEPS - 1)
    while timing.wall_s < seconds:
        with timing.adding(len(scripts) * (STEPS - 1), server.cpu_s):
            await connection.reset(f"replay-{timing.steps}", scripts, unfinished)
    return timing.cpu_us


async def episodes_in_batches(
    connection: Connection, scripts: list[Script], count: int, finish: bool
) -> AsyncIterator[int]:
    """Start `count` episodes that take `STEPS_TAKEN` steps, and `finish` them or leave them open.

    Yields their number before each batch, and at the end. The batch before the first, at a number
    below 0, opens connections to databases and grows what is never given back.
    """
    batch = dict(enumerate(itertools.islice(itertools.cycle(scripts), BATCH)))
    for first in range(-BATCH, count, BATCH):
        yield first
        name = f"memory{first}"
        await connection.reset(name, [*batch.values()])
        for step in range(STEPS_TAKEN + finish):
            place = step if step < STEPS_TAKEN else -1  # the last action is the answer
            actions = {number: script.actions[place] for number, script in batch.items()}
            await connection.step(name, step, actions)
    yield first + BATCH


async def kib_per_episode(
    server: ServerProcess, scripts: list[Script], count: int, finish: bool
) -> float:
    """Return the KiB per episode of `count` that took `STEPS_TAKEN` steps and may have finished."""
    assert server.pid is not None
    connection, before, held = await connect(server.port), 0.0, 0
    async for held in episodes_in_batches(connection, scripts, count, finish):
        if held == 0:
            before = memory_mib(server.pid)
    return 1024 * (memory_mib(server.pid) - before) / held


def measure(data: Path, workers: int, seconds: float, count: int) -> Inputs:
    """Measure what one server costs. `count` episodes are kept to measure their memory."""
    scripts = make_scripts(QuestionBank.load(data), SCRIPTS, STEPS)
    options = ("--workers", str(workers), "--capacity", "1000000")
    running = partial(
        running_server, data, *options, finished_capacity=1_000_000, result_cache_bytes=0
    )

    def cpu_us(url: str, pid: int, in_flight: int, *, batched: bool) -> float:
        port, cpu_s = int(url.rpartition(":")[2]), partial(session_cpu_s, pid)
        return play_over_http("", port, cpu_s, scripts, seconds, in_flight, batched=batched).cpu_us

    with running() as server:
        assert server.pid is not None
        base_mib = memory_mib(server.pid)
        step_us = cpu_us(server.url, server.pid, 1, batched=True)
        single_us = cpu_us(server.url, server.pid, 64, batched=False)
        replay_us = asyncio.run(cpu_us_of_replays(server, scripts, seconds))
        gateway_us = None
        if missing() is None:
            with running_gateway([server.url]) as gateway:
                gateway_us = cpu_us(gateway.url, gateway.process.pid, 64, batched=False)
    kib = []
    for finish in (False, True):
        with running() as server:
            kib.append(asyncio.run(kib_per_episode(server, scripts, count, finish)))
    return Inputs(step_us, single_us, replay_us, base_mib, kib[0], kib[1], gateway_us)


def main(
    episodes: Annotated[list[int], typer.Option(help="In flight; repeatable.")] = LOADS,
    turn_s: Annotated[float, typer.Option(min=0.001, help="Seconds per turn.")] = 2.0,
    waiting: Annotated[float, typer.Option(min=0.001, help="Share of a turn to wait.")] = 0.1,
    steps: Annotated[int, typer.Option(help="Steps taken when a server is lost.")] = 5,
    finished_capacity: Annotated[int, typer.Option(help="SQLENV_FINISHED_CAPACITY.")] = 10_000,
    data: DataDir = DATA,
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 2,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each CPU time.")] = 4.0,
    held: Annotated[int, typer.Option(help="Episodes whose memory is measured.")] = 5_000,
    json_path: JsonPath = None,
) -> None:
    """Measure what a server costs here, and compute how many of them a load needs."""
    inputs = measure(data, workers, seconds, held)
    plans = [plan(inputs, load, turn_s, waiting, steps, finished_capacity) for load in episodes]
    gateway = inputs.gateway_cpu_us
    costs = [
        ("CPU per step, in batches of 64", f"{inputs.step_cpu_us:.0f} us"),
        ("steps/s per core", f"{inputs.steps_per_s:,.0f}"),
        ("CPU per step, one per request", f"{inputs.single_cpu_us:.0f} us"),
        ("CPU per replayed step", f"{inputs.replay_cpu_us:.0f} us"),
        ("memory without episodes", f"{inputs.base_mib:.0f} MiB"),
        ("memory per unfinished episode", f"{inputs.episode_kib:.1f} KiB"),
        ("memory per finished episode", f"{inputs.finished_kib:.1f} KiB"),
        ("CPU of the gateway per request", f"{gateway:.0f} us" if gateway else "no HAProxy"),
    ]
    print_table("What one server costs", ("input", "measured"), costs)
    headings = ("episodes", "turn", "may wait", "servers", "waits", "rebuilds in", "memory each")
    rows = []
    for one in plans:
        load = f"{one.episodes:,}", f"{one.turn_s:g} s", percent(one.waiting, 0)
        times = f"{one.wait_s:.2f} s", f"{one.rebuild_s:.2f} s", f"{one.memory_mib:.0f} MiB"
        rows.append((*load, str(one.servers), *times))
    print_table("One-core servers, including a spare", headings, rows)
    report = {
        "inputs": asdict(inputs),
        "plans": [asdict(one) for one in plans],
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    write_json(json_path, report)


if __name__ == "__main__":
    typer.run(main)
