"""Measures what batching is worth: steps per second of concurrent episodes, batched and not.

Both ways play the same actions on one server process, in alternating rounds, so that a busy machine
slows both; trust the ratio. 'Plain' is the obvious client: httpx with its default limits and one
POST /step per step.

    python -m benchmarks.client_batching [--data DIR] [--json PATH]
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from shared.client import SQLEnvClient
from shared.console import write_json
from shared.errors import SQLEnvError
from trainer.runtime.server import SupervisedServer

Play = Callable[[str, str, int], Awaitable[Any]]  # (episode_id, action, step)
ACTIONS = (
    "DESCRIBE: {}",
    "QUERY: SELECT count(*) FROM {}",
    "SAMPLE: {}",
    "QUERY: SELECT * FROM {} LIMIT 3",
)


@dataclass
class Round:
    """The steps of one round, with their wall seconds and CPU-seconds (of this process)."""

    steps: int
    wall_s: float
    cpu_s: float

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.wall_s


def actions_of(tables: list[str], turns: int) -> list[str]:
    """Return cheap and varied actions."""
    return [ACTIONS[i % len(ACTIONS)].format(tables[i % len(tables)]) for i in range(turns)]


async def play_round(client: SQLEnvClient, play: Play, episodes: int, turns: int) -> Round:
    """Play fresh episodes; only their steps are timed."""
    started = []
    for reset in await client.reset_many(
        [{"split": "train", "seed": seed, "step_budget": 100} for seed in range(episodes)]
    ):
        if isinstance(reset, SQLEnvError):
            raise reset
        started.append(reset)

    async def episode(episode_id: str, actions: list[str]) -> None:
        for step, action in enumerate(actions):
            await play(episode_id, action, step)

    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(episode(r.episode_id, actions_of(r.observation.tables, turns)) for r in started)
    )
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    await asyncio.gather(*(client.close_episode(reset.episode_id) for reset in started))
    return Round(episodes * turns, wall_s, cpu_s)


async def compare(url: str, episodes: int, turns: int, rounds: int) -> dict[str, list[Round]]:
    """Return way -> its rounds."""
    async with SQLEnvClient(url) as client, httpx.AsyncClient(base_url=url, timeout=60.0) as http:

        async def plain(episode_id: str, action: str, step: int) -> None:
            body = {"episode_id": episode_id, "action": action, "step": step}
            (await http.post("/step", json=body)).raise_for_status().json()

        async def batched(episode_id: str, action: str, step: int) -> None:
            await client.step(episode_id, action)

        await play_round(client, batched, episodes, turns)  # warms the server's workers
        measured: dict[str, list[Round]] = {"plain": [], "batched": []}
        for _ in range(rounds):
            measured["plain"].append(await play_round(client, plain, episodes, turns))
            measured["batched"].append(await play_round(client, batched, episodes, turns))
    return measured


def main(
    data: Annotated[Path, typer.Option(help="Data directory of the server.")] = Path("data"),
    episodes: Annotated[int, typer.Option(help="Episodes played at once.")] = 64,
    turns: Annotated[int, typer.Option(help="Steps per episode, up to 100.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds per way.")] = 5,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers here as JSON.")
    ] = None,
) -> None:
    """Compare steps per second with and without batching."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        SupervisedServer(data, Path(scratch) / "server.log") as server,
    ):
        measured = asyncio.run(compare(server.url, episodes, turns, rounds))
    title = f"{episodes} episodes at once, median of {rounds} rounds"
    table = Table("way", "steps/s", "client CPU, ms/step", title=title)
    summary: dict[str, Any] = {"episodes": episodes, "turns": turns, "rounds": rounds}
    for way, played in measured.items():
        rate = median(one.steps_per_s for one in played)
        cpu_ms = median(1000 * one.cpu_s / one.steps for one in played)
        summary[way] = {"steps_per_s": round(rate, 1), "client_cpu_ms_per_step": round(cpu_ms, 4)}
        table.add_row(way, f"{rate:,.0f}", f"{cpu_ms:.3f}")
    pairs = zip(measured["batched"], measured["plain"], strict=True)
    summary["ratio"] = round(median(b.steps_per_s / p.steps_per_s for b, p in pairs), 2)
    table.add_row("ratio", f"{summary['ratio']} x", "")
    Console().print(table)
    write_json(json_path, summary)


if __name__ == "__main__":
    typer.run(main)
