"""What does HTTP cost a step? Steps a second through a real server, against the same steps in
process.

    python benchmarks/http_steps.py [--data DIR] [--seconds 3] [--json PATH]

The same episodes are played three ways in one run: in process (the bare loop), one step a request
(one in flight and 64 in flight), and in batches of 64 steps (one and two in flight). The client is
a raw socket with prepared bytes, so that the server is what is measured. `x` is the time of a step
over the bare one; CPU counts the server and its SQL workers. Times of a busy machine mean little:
compare the ratios of one run. Linux only (reads /proc).
"""

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from env_server.environment import SQLEnvironment  # noqa: E402
from env_server.questions import QuestionBank  # noqa: E402
from env_server.service import describe  # noqa: E402
from env_server.settings import Settings  # noqa: E402
from env_server.sql import SqlRunner  # noqa: E402
from shared.server_process import ServerProcess, running_server  # noqa: E402

EPISODES = 64
STEPS = 15


@dataclass
class Row:
    way: str
    steps: int
    wall_s: float
    cpu_s: float  # of whoever plays the steps: this process, or the server and its workers

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.steps * 1e6


@dataclass(frozen=True)
class Episode:
    question_id: str
    actions: list[str]


def make_episodes(bank: QuestionBank) -> list[Episode]:
    """One DESCRIBE, one SAMPLE, look-ups by row id, and an ANSWER: what agents mostly do."""
    questions = [question for split in bank.splits.values() for question in split]
    episodes = []
    for number in range(EPISODES):
        question = questions[number * len(questions) // EPISODES]
        table = question.tables_involved[0]
        lookups = [
            f'QUERY: SELECT * FROM "{table}" WHERE rowid = {number + step}'
            for step in range(STEPS - 3)
        ]
        episodes.append(
            Episode(
                question.question_id,
                [f"DESCRIBE: {table}", f"SAMPLE: {table}", *lookups, "ANSWER: 42"],
            )
        )
    return episodes


def play_in_process(bank: QuestionBank, episodes: list[Episode], seconds: float) -> Row:
    with SqlRunner(bank.limits) as runner:
        steps, cpu, wall = 0, 0.0, 0.0
        while wall < seconds:
            environments = [SQLEnvironment(bank, runner) for _ in episodes]
            for environment, episode in zip(environments, episodes, strict=True):
                environment.reset(question_id=episode.question_id)
            began, cpu_began = time.perf_counter(), time.process_time()
            for step in range(STEPS):
                for environment, episode in zip(environments, episodes, strict=True):
                    environment.step(episode.actions[step])
            wall += time.perf_counter() - began
            cpu += time.process_time() - cpu_began
            steps += STEPS * len(episodes)
    return Row("in process", steps, wall, cpu)


class Connection:
    """One keep-alive connection, one request in flight."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def post(self, path: str, body: bytes) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.writer.write(head + body)
        reply = await self.reader.readuntil(b"\r\n\r\n")
        status, _, rest = reply.partition(b"\r\n")
        size = int(rest.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self.reader.readexactly(size)
        if b" 200 " not in status or b'"error":{' in content:
            raise RuntimeError(f"{path}: {status!r} {content[:300]!r}")
        return content


async def connect(port: int, count: int) -> list[Connection]:
    return [
        Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))
        for _ in range(count)
    ]


async def play_over_http(
    way: str,
    cpu_s: Callable[[], float],
    connections: list[Connection],
    episodes: list[Episode],
    seconds: float,
    play: Callable[[list[Connection], list[Episode], str], Coroutine[Any, Any, None]],
) -> Row:
    steps, cpu, wall, turn = 0, 0.0, 0.0, 0
    while wall < seconds:
        name = f"{way.replace(' ', '').replace(',', '-')}-{turn}"
        resets = [
            {
                "episode_id": f"{name}-{number}",
                "question_id": episode.question_id,
                "step_budget": STEPS,
            }
            for number, episode in enumerate(episodes)
        ]
        await connections[0].post("/reset_batch", json.dumps({"resets": resets}).encode())
        cpu_began, began = cpu_s(), time.perf_counter()
        await play(connections, episodes, name)
        wall += time.perf_counter() - began
        cpu += cpu_s() - cpu_began
        steps += STEPS * len(episodes)
        turn += 1
    return Row(way, steps, wall, cpu)


def step_body(name: str, number: int, step: int, action: str) -> bytes:
    return json.dumps({"episode_id": f"{name}-{number}", "action": action, "step": step}).encode()


async def play_singles(connections: list[Connection], episodes: list[Episode], name: str) -> None:
    """Each connection plays its share of the episodes, a request a step."""

    async def share(first: int) -> None:
        for number in range(first, len(episodes), len(connections)):
            for step, action in enumerate(episodes[number].actions):
                await connections[first].post("/step", step_body(name, number, step, action))

    await asyncio.gather(*(share(first) for first in range(len(connections))))


async def play_batches(connections: list[Connection], episodes: list[Episode], name: str) -> None:
    """Each connection steps its share of the episodes together."""

    async def share(first: int) -> None:
        numbers = range(first, len(episodes), len(connections))
        for step in range(STEPS):
            items = [
                step_body(name, number, step, episodes[number].actions[step]) for number in numbers
            ]
            await connections[first].post("/step_batch", b'{"steps":[%b]}' % b",".join(items))

    await asyncio.gather(*(share(first) for first in range(len(connections))))


async def measure_http(server: ServerProcess, episodes: list[Episode], seconds: float) -> list[Row]:
    twice = episodes * 2
    connections = await connect(server.port, 64)
    rows = [
        await play_over_http(
            "one a request, 1 in flight",
            server.cpu_s,
            connections[:1],
            episodes,
            seconds,
            play_singles,
        ),
        await play_over_http(
            "one a request, 64 in flight",
            server.cpu_s,
            connections,
            episodes,
            seconds,
            play_singles,
        ),
        await play_over_http(
            "batches of 64, 1 in flight",
            server.cpu_s,
            connections[:1],
            episodes,
            seconds,
            play_batches,
        ),
        await play_over_http(
            "batches of 64, 2 in flight",
            server.cpu_s,
            connections[:2],
            twice,
            seconds,
            play_batches,
        ),
    ]
    for connection in connections:
        connection.writer.close()
    return rows


def main(
    data: Annotated[Path, typer.Option(help="Data directory.")] = ROOT / "data",
    seconds: Annotated[float, typer.Option(help="Seconds to measure each way.")] = 3.0,
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 1,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers here.")
    ] = None,
) -> None:
    """Steps a second over HTTP, one at a time and in batches, against the bare step in process."""
    bank = QuestionBank.load(data)
    episodes = make_episodes(bank)
    rows = [play_in_process(bank, episodes, seconds)]
    with running_server(
        data, "--workers", str(workers), capacity=100_000, finished_capacity=1_000
    ) as server:
        rows += asyncio.run(measure_http(server, episodes, seconds))
    bare = rows[0]
    table = Table("way", "steps/s", "of bare", "CPU us/step", "x bare CPU", title="Steps over HTTP")
    for row in rows:
        share, times = row.steps_per_s / bare.steps_per_s, row.cpu_us / bare.cpu_us
        table.add_row(
            row.way, f"{row.steps_per_s:,.0f}", f"{share:.1%}", f"{row.cpu_us:.0f}", f"{times:.2f}"
        )
    Console().print(table)
    if json_path is not None:
        report = {
            "rows": [
                asdict(row)
                | {
                    "steps_per_s": row.steps_per_s,
                    "share_of_bare": row.steps_per_s / bare.steps_per_s,
                    "cpu_us_per_step": row.cpu_us,
                    "cpu_over_bare": row.cpu_us / bare.cpu_us,
                }
                for row in rows
            ],
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": bank.sqlite_version,
            "digest": describe(bank, Settings()).digest,
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
