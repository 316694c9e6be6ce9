"""Measurements of one server as one quantity grows."""

import asyncio
import itertools
import math
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from benchmarks.attacks.attackers import ENDLESS
from benchmarks.http_steps import SCRIPTS, STEPS, connect
from benchmarks.measuring import Script, make_scripts, memory_mib
from benchmarks.server_steps import sales_data
from benchmarks.sizing import BATCH, STEPS_TAKEN, episodes_in_batches
from env_server.questions import QuestionBank
from shared.client import SQLEnvClient
from shared.server_process import ServerProcess, running_server

GOLD_SQL = "SELECT count(*) FROM sales"
THINK_S = 0.1  # of an agent at its own pace, between two steps
SAMPLES = 20  # of the memory along a curve
# Scripts repeat their queries, which must all run.
uncached = partial(running_server, finished_capacity=1_000, result_cache_bytes=0)
Row = dict[str, Any]


@dataclass(frozen=True)
class Steps:
    """Steps that many episodes took at the same time, and how long each one waited for its own."""

    steps: int
    steps_per_s: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, took_s: Sequence[float], wall_s: float) -> Self:
        """Return the statistics of the seconds that each step took."""
        ordered = sorted(took_s)
        p50, p99 = (1000 * ordered[math.ceil(q * len(ordered)) - 1] for q in (0.5, 0.99))
        return cls(len(ordered), len(ordered) / wall_s, p50, p99)


def scripts_for(bank: QuestionBank, episodes: int) -> list[Script]:
    """Return the scripts of so many episodes; beyond `SCRIPTS` they are played by several."""
    return [*itertools.islice(itertools.cycle(make_scripts(bank, SCRIPTS, STEPS)), episodes)]


async def play(
    url: str, scripts: Sequence[Script], seconds: float, think_s: float = 0.0
) -> tuple[list[float], float]:
    """Play an episode per script at the same time, each again and again, until `seconds` are over.

    Returns the seconds of each step, and those of all. Between two steps an agent waits for
    `think_s`; they start at different times within it.
    """
    took_s: list[float] = []
    async with SQLEnvClient(url) as client:

        async def start(script: Script) -> str:
            budget = len(script.actions)
            reply = await client.reset(question_id=script.question_id, step_budget=budget)
            return reply.episode_id

        async def agent(script: Script, episode_id: str, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            while True:
                for action in script.actions:
                    if (before := time.perf_counter()) >= until:
                        return
                    await client.step(episode_id, action)
                    took_s.append(time.perf_counter() - before)
                    await asyncio.sleep(think_s)
                episode_id = await start(script)

        ids = await asyncio.gather(*map(start, scripts))
        began = time.perf_counter()
        until = began + seconds
        each = enumerate(zip(scripts, ids, strict=True))
        await asyncio.gather(
            *(agent(script, name, think_s * at / len(ids)) for at, (script, name) in each)
        )
        return took_s, time.perf_counter() - began


def measure_play(url: str, scripts: Sequence[Script], seconds: float) -> Steps:
    """Measure agents that act as soon as they have their replies."""
    return Steps.of(*asyncio.run(play(url, scripts, seconds)))


def latency(data: Path, episodes: Sequence[int], seconds: float) -> list[Row]:
    """Measure steps against the episodes at the same time."""
    bank = QuestionBank.load(data)
    with uncached(data, "--capacity", "100000") as server:
        measure_play(server.url, scripts_for(bank, 16), min(1.0, seconds))  # warms up
        return [
            {"episodes": count}
            | asdict(measure_play(server.url, scripts_for(bank, count), seconds))
            for count in episodes
        ]


@asynccontextmanager
async def runaway(url: str, question_id: str) -> AsyncIterator[None]:
    """Let an episode of another client send queries that never end by themselves meanwhile."""

    async def run() -> None:
        async with SQLEnvClient(url) as client:
            while True:
                episode = await client.reset(question_id=question_id, step_budget=100)
                for _ in range(100):
                    await client.step(episode.episode_id, ENDLESS)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def beside_runaway(data: Path, episodes: int, seconds: float, rounds: int) -> Row:
    """Measure steps of agents at their own pace, without and with a runaway query elsewhere.

    Rounds of both alternate, so that other load on the machine affects both.
    """
    scripts = scripts_for(QuestionBank.load(data), episodes)
    took_s: dict[str, list[float]] = {"alone": [], "beside": []}
    wall_s = dict.fromkeys(took_s, 0.0)

    async def all_rounds(url: str) -> None:
        await play(url, scripts, min(1.0, seconds), THINK_S)  # warms up
        for way in [*took_s] * rounds:
            async with AsyncExitStack() as stack:
                if way == "beside":
                    await stack.enter_async_context(runaway(url, scripts[0].question_id))
                took, wall = await play(url, scripts, seconds, THINK_S)
            took_s[way] += took
            wall_s[way] += wall

    with uncached(data) as server:
        asyncio.run(all_rounds(server.url))
    found: Row = {way: {"way": way} | asdict(Steps.of(took_s[way], wall_s[way])) for way in took_s}
    more_ms = found["beside"]["p99_ms"] - found["alone"]["p99_ms"]
    return {"episodes": episodes, "think_s": THINK_S, "p99_more_ms": more_ms} | found


def rows(counts: Sequence[int], seconds: float) -> list[Row]:
    """Measure steps of 64 episodes against the rows of a table, by key and by a column without an
    index."""
    found = []
    for count in counts:
        wheres = {
            "key": [f"id = {n * count // SCRIPTS}" for n in range(SCRIPTS)],
            "scan": [f"customer = 'nobody {n}'" for n in range(SCRIPTS)],
        }
        with sales_data(count, gold_sql=GOLD_SQL) as data, uncached(data) as server:
            ways = {}
            for way, conditions in wheres.items():
                actions = [f"QUERY: SELECT * FROM sales WHERE {one}" for one in conditions]
                scripts = [Script("sales-1", [action] * STEPS) for action in actions]
                ways[way] = asdict(measure_play(server.url, scripts, seconds))
            found.append({"rows": count} | ways)
    return found


def questions(counts: Sequence[int]) -> list[Row]:
    """Measure a server's start and its memory against its questions, of one database."""
    found = []
    for count in counts:
        with sales_data(100, count, GOLD_SQL) as data:
            began = time.perf_counter()
            with uncached(data) as server:
                start_s = time.perf_counter() - began
                assert server.pid is not None
                row = {"start_s": start_s, "cpu_s": server.cpu_s(), "mib": memory_mib(server.pid)}
                found.append({"questions": count, "peak_mib": peak_mib(server.pid), **row})
    return found


def peak_mib(pid: int) -> float:
    """Return the most memory that a process had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def heap_mib(pid: int) -> float:
    """Return the anonymous memory of a process and its children."""
    pids = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    texts = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in pids]
    return sum(int(text.partition("\nAnonymous:")[2].split()[0]) for text in texts) / 1024


def open_memory(data: Path, count: int) -> Row:
    """Measure the memory of a server against its open episodes, up to `count`.

    An episode's history is its actions and its last reply, which the server counts. At the end, the
    first episodes take one more step.
    """
    scripts = make_scripts(QuestionBank.load(data), SCRIPTS, STEPS)

    async def measured(server: ServerProcess) -> Row:
        assert server.pid is not None
        connection = await connect(server.port)
        memory: list[Row] = []
        slowest_ms, before = 0.0, time.perf_counter()
        every = max(BATCH, count // SAMPLES // BATCH * BATCH)
        async for number in episodes_in_batches(connection, scripts, count, finish=False):
            if number >= 0:
                slowest_ms = max(slowest_ms, 1000 * (time.perf_counter() - before))
            if number >= 0 and number % every == 0:
                memory.append({"open": number, "mib": memory_mib(server.pid)})
            before = time.perf_counter()
        await connection.step("memory0", STEPS_TAKEN, {0: "QUERY: SELECT 1"})
        held, leases = (metric(server.url, name) for name in ("held_bytes", "leases"))
        each = 2**20 * (memory[-1]["mib"] - memory[0]["mib"]) / memory[-1]["open"]
        return {
            "open": int(leases),
            "bytes_each": each,
            "history_bytes_each": held / leases,
            "beyond_history_bytes_each": each - held / leases,
            "slowest_batch_ms": slowest_ms,
            "memory": memory,
        }

    with uncached(data, "--capacity", "1000000") as server:
        return asyncio.run(measured(server))


def metric(url: str, name: str) -> float:
    """Return one of a server's metrics."""
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith(f"sqlenv_{name} "):
            return float(line.split()[1])
    raise ValueError(f"no metric sqlenv_{name}")


def memory_over_steps(data: Path, steps: int) -> Row:
    """Measure the heap of a server while it takes `steps` steps, and its slope in the second half.

    Its other memory, of libraries, depends on which processes share it.
    """
    scripts = make_scripts(QuestionBank.load(data), SCRIPTS, STEPS)

    async def measured(server: ServerProcess) -> Row:
        assert server.pid is not None
        connection, taken = await connect(server.port), 0
        memory: list[Row] = []
        while taken < steps:
            await connection.reset(f"wave{taken}", scripts)
            await connection.play(f"wave{taken}", dict(enumerate(scripts)), batched=True)
            taken += STEPS * len(scripts)
            if taken >= steps * (len(memory) + 1) / SAMPLES:
                memory.append({"steps": taken, "mib": heap_mib(server.pid)})
        half = memory[len(memory) // 2 :]
        points = [one["steps"] for one in half], [2**20 * one["mib"] for one in half]
        slope = statistics.linear_regression(*points).slope
        return {"steps": taken, "bytes_per_step": slope, "memory": memory}

    with uncached(data) as server:
        return asyncio.run(measured(server))
