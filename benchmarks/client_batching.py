"""What is gathering worth? Steps a second of 64 concurrent episodes, gathered into batches against
one request a step.

Both ways play the same actions on one server process, in alternating rounds, so that a busy machine
slows both; the ratio is what to trust. 'Plain' is what one writes first: an httpx client with its
default limits and a POST /step for each step.

    python benchmarks/client_batching.py --data data --out runs/client_batching.json
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, installed or not

from shared.client import SQLEnvClient
from shared.errors import SQLEnvError
from trainer.runtime.server import SupervisedServer

Play = Callable[[str, str, int], Awaitable[Any]]  # (episode_id, action, step)


def actions_of(schema_info: str, turns: int) -> list[str]:
    """Cheap and varied actions on the tables of 'Tables: a, b'."""
    tables = schema_info.splitlines()[0].removeprefix("Tables: ").split(", ")
    forms = (
        "DESCRIBE: {}",
        "QUERY: SELECT count(*) FROM {}",
        "SAMPLE: {}",
        "QUERY: SELECT * FROM {} LIMIT 3",
    )
    return [forms[turn % len(forms)].format(tables[turn % len(tables)]) for turn in range(turns)]


async def round_of(client: SQLEnvClient, play: Play, episodes: int, turns: int) -> dict[str, float]:
    """Plays fresh episodes; only their steps are timed. -> wall and CPU seconds (of this process)
    and steps."""
    resets = await client.reset_many(
        [{"split": "train", "seed": i, "step_budget": 100} for i in range(episodes)]
    )
    started = [reset for reset in resets if not isinstance(reset, SQLEnvError)]
    if len(started) < episodes:
        raise next(reset for reset in resets if isinstance(reset, SQLEnvError))

    async def episode(episode_id: str, actions: list[str]) -> None:
        for step, action in enumerate(actions):
            await play(episode_id, action, step)

    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(episode(r.episode_id, actions_of(r.observation.schema_info, turns)) for r in started)
    )
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    await asyncio.gather(*(client.close_episode(reset.episode_id) for reset in started))
    return {"wall_s": wall_s, "cpu_s": cpu_s, "steps": float(episodes * turns)}


async def compare(
    url: str, episodes: int, turns: int, rounds: int
) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {"plain": [], "gathered": []}
    async with SQLEnvClient(url) as client, httpx.AsyncClient(base_url=url, timeout=60.0) as http:

        async def plain(episode_id: str, action: str, step: int) -> None:
            body = {"episode_id": episode_id, "action": action, "step": step}
            (await http.post("/step", json=body)).raise_for_status().json()

        async def gathered(episode_id: str, action: str, step: int) -> None:
            await client.step(episode_id, action)

        await round_of(client, gathered, episodes, turns)  # warms the server's workers
        for _ in range(rounds):
            found["plain"].append(await round_of(client, plain, episodes, turns))
            found["gathered"].append(await round_of(client, gathered, episodes, turns))
    return found


def main(
    data: Annotated[Path, typer.Option(help="Data directory that the server serves.")] = Path(
        "data"
    ),
    episodes: Annotated[int, typer.Option(help="Episodes played at once.")] = 64,
    turns: Annotated[int, typer.Option(help="Steps of each episode, up to 100.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of each way.")] = 5,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/client_batching.json"
    ),
) -> None:
    with (
        tempfile.TemporaryDirectory() as scratch,
        SupervisedServer(data, Path(scratch) / "server.log") as server,
    ):
        found = asyncio.run(compare(server.url, episodes, turns, rounds))
    table = Table(
        "way",
        "steps/s",
        "client CPU, ms/step",
        title=f"{episodes} episodes at once, median of {rounds} rounds",
    )
    summary: dict[str, Any] = {"episodes": episodes, "turns": turns, "rounds": rounds}
    for way, measured in found.items():
        steps_per_s = statistics.median(r["steps"] / r["wall_s"] for r in measured)
        cpu_ms = statistics.median(1000 * r["cpu_s"] / r["steps"] for r in measured)
        summary[way] = {
            "steps_per_s": round(steps_per_s, 1),
            "client_cpu_ms_per_step": round(cpu_ms, 4),
        }
        table.add_row(way, f"{steps_per_s:,.0f}", f"{cpu_ms:.3f}")
    ratios = [
        g["steps"] / g["wall_s"] / (p["steps"] / p["wall_s"])
        for p, g in zip(*found.values(), strict=True)
    ]
    summary["ratio"] = round(statistics.median(ratios), 2)
    table.add_row("ratio", f"{summary['ratio']} x", "")
    Console().print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
