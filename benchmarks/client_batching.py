"""Measures what batching is worth: steps per second of concurrent episodes, batched and not.

Both ways play the same actions on one server process, in alternating rounds, so that a busy machine
slows both; trust the ratio. 'Plain' is the obvious client: httpx with its default limits and one
POST /step per step.

    python -m benchmarks.client_batching [--data DIR] [--json PATH]
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Annotated, Any

import httpx
import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, Script, Timing, make_scripts, print_table
from env_server.questions import QuestionBank
from shared.client import SQLEnvClient
from shared.console import write_json
from shared.server_process import running_server

Play = Callable[[str, str, int], Awaitable[Any]]  # (episode_id, action, step)


async def play_round(
    way: str, client: SQLEnvClient, play: Play, scripts: Sequence[Script]
) -> Timing:
    """Play fresh episodes; only their steps are timed, with the CPU time of this process."""
    turns = len(scripts[0].actions)
    started = await asyncio.gather(
        *(client.reset(question_id=script.question_id, step_budget=turns) for script in scripts)
    )

    async def episode(episode_id: str, actions: Sequence[str]) -> None:
        for step, action in enumerate(actions):
            await play(episode_id, action, step)

    timing, pairs = Timing(way), zip(started, scripts, strict=True)
    with timing.adding(turns * len(scripts)):
        await asyncio.gather(*(episode(reset.episode_id, one.actions) for reset, one in pairs))
    return timing


async def compare(url: str, scripts: Sequence[Script], rounds: int) -> dict[str, list[Timing]]:
    """Return way -> its rounds."""
    async with SQLEnvClient(url) as client, httpx.AsyncClient(base_url=url, timeout=60.0) as http:

        async def plain(episode_id: str, action: str, step: int) -> None:
            body = {"episode_id": episode_id, "action": action, "step": step}
            (await http.post("/step", json=body)).raise_for_status().json()

        async def batched(episode_id: str, action: str, step: int) -> None:
            await client.step(episode_id, action)

        await play_round("warm-up", client, batched, scripts)
        ways: dict[str, Play] = {"plain": plain, "batched": batched}
        measured: dict[str, list[Timing]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, play in ways.items():
                measured[way].append(await play_round(way, client, play, scripts))
    return measured


def main(
    data: DataDir = DATA,
    episodes: Annotated[int, typer.Option(help="Episodes played at once.")] = 64,
    turns: Annotated[int, typer.Option(min=3, max=100, help="Steps per episode.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds per way.")] = 5,
    json_path: JsonPath = None,
) -> None:
    """Compare steps per second with and without batching."""
    scripts = make_scripts(QuestionBank.load(data), episodes, turns)
    with running_server(data) as server:
        measured = asyncio.run(compare(server.url, scripts, rounds))
    summary: dict[str, Any] = {"episodes": episodes, "turns": turns, "rounds": rounds}
    rows = []
    for way, played in measured.items():
        rate = median(one.steps_per_s for one in played)
        cpu_ms = median(one.cpu_us / 1000 for one in played)
        summary[way] = {"steps_per_s": round(rate, 1), "client_cpu_ms_per_step": round(cpu_ms, 4)}
        rows.append((way, f"{rate:,.0f}", f"{cpu_ms:.3f}"))
    pairs = zip(measured["batched"], measured["plain"], strict=True)
    summary["ratio"] = round(median(b.steps_per_s / p.steps_per_s for b, p in pairs), 2)
    title = f"{episodes} episodes at once, median of {rounds} rounds"
    headings = ("way", "steps/s", "client CPU, ms/step")
    print_table(title, headings, [*rows, ("ratio", f"{summary['ratio']} x", "")])
    write_json(json_path, summary)


if __name__ == "__main__":
    typer.run(main)
