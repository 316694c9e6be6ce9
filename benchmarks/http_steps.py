"""What HTTP costs per step: steps through a real server, compared with the same steps in process.

    python -m benchmarks.http_steps [--data DIR] [--seconds 3] [--json PATH]

One run plays the same scripts in process, with one step per request (1 and 64 in flight), and in
batches of 64 steps (1 and 2 in flight). The client is a raw socket, so that the server is what is
measured. CPU times include the server's SQL workers. Compare the ratios of one run: times depend on
the machine's load. Linux only (reads /proc).
"""

import asyncio
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql import SqlRunner
from shared.server_process import ServerProcess, running_server

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = 64
STEPS = 15


@dataclass
class Timing:
    """What the steps of one way took."""

    way: str
    steps: int
    wall_s: float
    cpu_s: float  # of this process in process, else of the server and its workers

    @property
    def steps_per_s(self) -> float:
        """Steps per second of wall time."""
        return self.steps / self.wall_s

    @property
    def cpu_us(self) -> float:
        """CPU time per step."""
        return self.cpu_s / self.steps * 1e6


@dataclass(frozen=True)
class Script:
    """The actions of one episode."""

    question_id: str
    actions: list[str]


def make_scripts(bank: QuestionBank) -> list[Script]:
    """Return scripts of a DESCRIBE, a SAMPLE, look-ups by row id and an ANSWER."""
    questions = [question for split in bank.splits.values() for question in split]
    scripts = []
    for number in range(SCRIPTS):
        question = questions[number * len(questions) // SCRIPTS]
        table = question.tables_involved[0]
        lookup = f'QUERY: SELECT * FROM "{table}" WHERE rowid = '
        actions = [f"DESCRIBE: {table}", f"SAMPLE: {table}"]
        actions += [f"{lookup}{number + step}" for step in range(STEPS - 3)]
        scripts.append(Script(question.question_id, [*actions, "ANSWER: 42"]))
    return scripts


def play_in_process(bank: QuestionBank, scripts: list[Script], seconds: float) -> Timing:
    """Play the scripts without a server for at least `seconds`."""
    timing = Timing("in process", 0, 0.0, 0.0)
    with SqlRunner(bank.limits) as runner:
        while timing.wall_s < seconds:
            environments = [SQLEnvironment(bank, runner) for _ in scripts]
            for environment, script in zip(environments, scripts, strict=True):
                environment.reset(question_id=script.question_id)
            started, cpu_started = time.perf_counter(), time.process_time()
            for step in range(STEPS):
                for environment, script in zip(environments, scripts, strict=True):
                    environment.step(script.actions[step])
            timing.wall_s += time.perf_counter() - started
            timing.cpu_s += time.process_time() - cpu_started
            timing.steps += STEPS * len(scripts)
    return timing


@dataclass
class Connection:
    """A keep-alive connection with one request in flight."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def post(self, path: str, body: bytes) -> None:
        """Send a request and read its reply; `RuntimeError` if it is or contains an error."""
        head = f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.writer.write(head + body)
        reply = await self.reader.readuntil(b"\r\n\r\n")
        status, _, rest = reply.partition(b"\r\n")
        size = int(rest.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self.reader.readexactly(size)
        if b" 200 " not in status or b'"error":{' in content:
            raise RuntimeError(f"{path}: {status!r} {content[:300]!r}")

    async def reset(
        self, name: str, scripts: list[Script], actions: list[list[str]] | None = None
    ) -> None:
        """Start an episode `name-<number>` per script, replaying `actions`."""
        resets = [
            {
                "episode_id": f"{name}-{number}",
                "question_id": script.question_id,
                "step_budget": STEPS,
                "actions": actions[number] if actions else [],
            }
            for number, script in enumerate(scripts)
        ]
        await self.post("/reset_batch", json.dumps({"resets": resets}).encode())

    async def step(self, name: str, step: int, actions: dict[int, str]) -> None:
        """Take one step of each numbered episode, in a batch."""
        bodies = [step_body(name, number, step, action) for number, action in actions.items()]
        await self.post("/step_batch", b'{"steps":[%b]}' % b",".join(bodies))


async def connect(port: int, count: int) -> list[Connection]:
    """Open `count` connections."""
    return [
        Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))
        for _ in range(count)
    ]


def step_body(name: str, number: int, step: int, action: str) -> bytes:
    """Return the JSON of a step request."""
    return json.dumps({"episode_id": f"{name}-{number}", "action": action, "step": step}).encode()


Play = Callable[[list[Connection], list[Script], str], Awaitable[None]]


async def play_over_http(
    way: str,
    cpu_s: Callable[[], float],
    connections: list[Connection],
    scripts: list[Script],
    seconds: float,
    play: Play,
) -> Timing:
    """Play the scripts over HTTP for at least `seconds`. `cpu_s` returns the server's CPU time."""
    timing = Timing(way, 0, 0.0, 0.0)
    while timing.wall_s < seconds:
        name = f"{way.replace(' ', '').replace(',', '-')}-{timing.steps}"
        await connections[0].reset(name, scripts)
        cpu_started, started = cpu_s(), time.perf_counter()
        await play(connections, scripts, name)
        timing.wall_s += time.perf_counter() - started
        timing.cpu_s += cpu_s() - cpu_started
        timing.steps += STEPS * len(scripts)
    return timing


async def play_singles(connections: list[Connection], scripts: list[Script], name: str) -> None:
    """Play each connection's share of the episodes with one step per request."""

    async def share(first: int) -> None:
        for number in range(first, len(scripts), len(connections)):
            for step, action in enumerate(scripts[number].actions):
                await connections[first].post("/step", step_body(name, number, step, action))

    await asyncio.gather(*(share(first) for first in range(len(connections))))


async def play_batches(connections: list[Connection], scripts: list[Script], name: str) -> None:
    """Step each connection's share of the episodes together."""

    async def share(first: int) -> None:
        numbers = range(first, len(scripts), len(connections))
        for step in range(STEPS):
            actions = {number: scripts[number].actions[step] for number in numbers}
            await connections[first].step(name, step, actions)

    await asyncio.gather(*(share(first) for first in range(len(connections))))


async def measure(server: ServerProcess, scripts: list[Script], seconds: float) -> list[Timing]:
    """Measure all ways over HTTP."""
    connections, timings = await connect(server.port, 64), []
    for way, in_flight, played, play in (
        ("one per request, 1 in flight", 1, scripts, play_singles),
        ("one per request, 64 in flight", 64, scripts, play_singles),
        ("batches of 64, 1 in flight", 1, scripts, play_batches),
        ("batches of 64, 2 in flight", 2, scripts * 2, play_batches),
    ):
        used = connections[:in_flight]
        timings.append(await play_over_http(way, server.cpu_s, used, played, seconds, play))
    return timings


def main(
    data: Annotated[Path, typer.Option(help="Data directory.")] = ROOT / "data",
    seconds: Annotated[float, typer.Option(help="Seconds to measure each way.")] = 3.0,
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 1,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write JSON here.")] = None,
) -> None:
    """Measure steps per second over HTTP, alone and in batches, against steps in process."""
    bank = QuestionBank.load(data)
    scripts = make_scripts(bank)
    bare = play_in_process(bank, scripts, seconds)
    options = ("--workers", str(workers), "--capacity", "100000")
    with running_server(data, *options, finished_capacity=1_000) as server:
        timings = [bare, *asyncio.run(measure(server, scripts, seconds))]
    table = Table("way", "steps/s", "relative", "CPU us/step", "relative", title="Steps over HTTP")
    lines = []
    for timing in timings:
        share, ratio = timing.steps_per_s / bare.steps_per_s, timing.cpu_us / bare.cpu_us
        speed, cpu = f"{timing.steps_per_s:,.0f}", f"{timing.cpu_us:.0f}"
        table.add_row(timing.way, speed, f"{share:.1%}", cpu, f"{ratio:.2f}")
        line = asdict(timing) | {"steps_per_s": timing.steps_per_s, "share_of_bare": share}
        lines.append(line | {"cpu_us_per_step": timing.cpu_us, "cpu_over_bare": ratio})
    Console().print(table)
    if json_path is not None:
        report = {
            "rows": lines,
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": bank.sqlite_version,
            "digest": describe(bank, Settings()).digest,
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
