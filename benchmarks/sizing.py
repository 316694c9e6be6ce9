"""Measures S of docs/operate.md: the steps per second that one core of this machine serves.

64 episodes of 10 steps at once, as often as fits in the time, by CPU-seconds of the server and its
SQL workers: so the client's share, or other work on the machine, changes little.

    python -m benchmarks.sizing [--data DIR] [--seconds 10]
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from benchmarks.measuring import DATA, DataDir, make_scripts
from benchmarks.peers.worker import Episode
from env_server.questions import QuestionBank
from shared.client import ClientLimits, SQLEnvClient
from shared.errors import SQLEnvError
from shared.server_process import ServerProcess, running_server

AT_ONCE, STEPS = 64, 10


async def rate(
    server: ServerProcess, scripts: Sequence[Episode], batch: int, seconds: float
) -> tuple[int, float]:
    """Return the steps played in about so many seconds, and steps per CPU-second of the server."""
    async with SQLEnvClient(server.url, ClientLimits(max_batch=batch)) as client:
        steps, cpu_s, end = -AT_ONCE * STEPS, 0.0, time.monotonic() + seconds
        while time.monotonic() < end or steps <= 0:
            began = server.cpu_s()
            replies = await client.reset_many({"question_id": one.question_id} for one in scripts)
            names = [one.episode_id for one in replies if not isinstance(one, SQLEnvError)]
            for moment in zip(*(one.actions for one in scripts), strict=True):
                for reply in await client.step_many(zip(names, moment, strict=True)):
                    if isinstance(reply, SQLEnvError):
                        raise reply
            cpu_s += server.cpu_s() - began if steps >= 0 else 0.0  # the first wave warms up
            steps += AT_ONCE * STEPS
    return steps, steps / cpu_s


def main(
    data: DataDir = DATA,
    seconds: Annotated[float, typer.Option(help="Seconds per measurement.")] = 10.0,
) -> None:
    """Measure steps in batches, as the client sends them, and one step per request."""
    scripts = make_scripts(QuestionBank.load(data), AT_ONCE, STEPS)
    with running_server(data, sql_workers=1) as server:
        for batch in (AT_ONCE, 1):
            steps, per_s = asyncio.run(rate(server, scripts, batch, seconds))
            cost = f"{1e6 / per_s:.0f} us of CPU per step, {per_s:,.0f} steps per second and core"
            whose = "S of the trainer's client" if batch > 1 else "S of agents, a step per request"
            print(f"{batch} steps per request: {steps:,} steps, {cost} ({whose})")


if __name__ == "__main__":
    typer.run(main)
