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
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, Script, Timing, make_scripts, print_table
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql.run import SqlRunner
from shared.console import percent, write_json
from shared.server_process import running_server

SCRIPTS = 64
STEPS = 15


def play_in_process(bank: QuestionBank, scripts: Sequence[Script], seconds: float) -> Timing:
    """Play the scripts without a server for at least `seconds`."""
    timing = Timing("in process")
    with SqlRunner(bank.limits) as runner:
        while timing.wall_s < seconds:
            environments = [SQLEnvironment(bank, runner) for _ in scripts]
            for environment, script in zip(environments, scripts, strict=True):
                environment.reset(question_id=script.question_id, step_budget=STEPS)
            with timing.adding(STEPS * len(scripts)):
                for step in range(STEPS):
                    for environment, script in zip(environments, scripts, strict=True):
                        environment.step(script.actions[step])
    return timing


@dataclass
class Connection:
    """A keep-alive connection with one request in flight."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def post(self, path: str, request: object) -> None:
        """Send a request and read its reply; `RuntimeError` if it is or contains an error."""
        body = json.dumps(request).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self.writer.write(head + body)
        reply = await self.reader.readuntil(b"\r\n\r\n")
        status, _, rest = reply.partition(b"\r\n")
        size = int(rest.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = await self.reader.readexactly(size)
        if b" 200 " not in status or b'"error":{' in content:
            raise RuntimeError(f"{path}: {status!r} {content[:300]!r}")

    async def reset(self, name: str, scripts: Sequence[Script], replayed: slice = slice(0)) -> None:
        """Start an episode `name-<number>` per script, with some of its actions replayed."""
        resets = [
            {
                "episode_id": f"{name}-{number}",
                "question_id": script.question_id,
                "step_budget": STEPS,
                "actions": script.actions[replayed],
            }
            for number, script in enumerate(scripts)
        ]
        await self.post("/reset_batch", {"resets": resets})

    async def step(
        self, name: str, step: int, actions: Mapping[int, str], *, batched: bool = True
    ) -> None:
        """Take one step of each numbered episode, in a batch; without one, of a single episode."""
        steps = [
            {"episode_id": f"{name}-{number}", "action": action, "step": step}
            for number, action in actions.items()
        ]
        if batched:
            await self.post("/step_batch", {"steps": steps})
        else:
            await self.post("/step", *steps)

    async def play(self, name: str, scripts: Mapping[int, Script], batched: bool) -> None:
        """Play numbered episodes: all together in batches, or one after another."""
        groups = [scripts] if batched else [{number: scripts[number]} for number in scripts]
        for group in groups:
            for step in range(STEPS):
                actions = {number: script.actions[step] for number, script in group.items()}
                await self.step(name, step, actions, batched=batched)


async def connect(port: int) -> Connection:
    """Open a connection."""
    return Connection(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))


def play_over_http(
    way: str,
    port: int,
    cpu_s: Callable[[], float],
    scripts: Sequence[Script],
    seconds: float,
    in_flight: int,
    *,
    batched: bool,
) -> Timing:
    """Play the scripts for at least `seconds` on `in_flight` connections, each with its share.

    `cpu_s` returns the server's CPU time.
    """
    timing = Timing(way)
    shares = [dict([*enumerate(scripts)][first::in_flight]) for first in range(in_flight)]

    async def play() -> None:
        connections = [await connect(port) for _ in shares]
        while timing.wall_s < seconds:
            name = secrets.token_hex(8)
            await connections[0].reset(name, scripts)
            with timing.adding(STEPS * len(scripts), cpu_s):
                played = zip(connections, shares, strict=True)
                await asyncio.gather(*(one.play(name, share, batched) for one, share in played))

    asyncio.run(play())
    return timing


def main(
    data: DataDir = DATA,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each way.")] = 3.0,
    workers: Annotated[int, typer.Option(help="SQL worker processes of the server.")] = 1,
    json_path: JsonPath = None,
) -> None:
    """Measure steps per second over HTTP, alone and in batches, against steps in process."""
    bank = QuestionBank.load(data)
    scripts = make_scripts(bank, SCRIPTS, STEPS)
    base = play_in_process(bank, scripts, seconds)
    timings = [base]
    options = ("--workers", str(workers), "--capacity", "100000")
    # the rounds repeat their queries, which must all run
    with running_server(data, *options, finished_capacity=1_000, result_cache_bytes=0) as server:
        for way, played, in_flight, batched in (
            ("one per request, 1 in flight", scripts, 1, False),
            ("one per request, 64 in flight", scripts, 64, False),
            ("batches of 64, 1 in flight", scripts, 1, True),
            ("batches of 64, 2 in flight", scripts * 2, 2, True),
        ):
            timings.append(
                play_over_http(
                    way, server.port, server.cpu_s, played, seconds, in_flight, batched=batched
                )
            )
    lines, rows = [], []
    for timing in timings:
        speed, cpu_us = timing.steps_per_s, timing.cpu_us
        share, ratio = speed / base.steps_per_s, cpu_us / base.cpu_us
        line = asdict(timing) | {"steps_per_s": speed, "share_of_bare": share}
        lines.append(line | {"cpu_us_per_step": cpu_us, "cpu_over_bare": ratio})
        cells = (f"{speed:,.0f}", percent(share), f"{cpu_us:.0f}", f"{ratio:.2f}")
        rows.append((timing.way, *cells))
    headings = ("way", "steps/s", "relative", "CPU us/step", "relative")
    print_table("Steps over HTTP", headings, rows)
    report = {
        "rows": lines,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": bank.sqlite_version,
        "digest": describe(bank, Settings()).digest,
    }
    write_json(json_path, report)


if __name__ == "__main__":
    typer.run(main)
