"""What attacks cost honest clients: 64 honest episodes beside each attack, and beside all at once.

    python -m benchmarks.attacks [--seconds 10] [--only NAME] [--json PATH]

Each row has its own server with keys: the honest episodes have the trainer's, all attackers one
agent's. Honest episodes take a step every 0.1 s through the public client; the time of a reset or a
step is measured there. `cpu_after_s` is what the server still works after the attackers left and
the honest episodes ended. Each attacker is a process of a lower priority. Linux only (reads /proc).
"""

import asyncio
import logging
import math
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.attacks.attackers import ATTACKS, Target, run
from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, make_scripts, memory_mib
from benchmarks.peers.worker import Episode
from env_server.questions import QuestionBank
from shared.client import ClientLimits, SQLEnvClient
from shared.console import write_json
from shared.errors import SQLEnvError
from shared.server_process import ServerProcess, running_server

EPISODES = 64
STEPS = 15
THINK_S = 0.1  # between two steps of an honest episode
PATIENCE_S = 20.0  # for the last honest steps
SAMPLE_S = 0.25  # between two readings of the server's memory
SETTLE_S = 1.0  # for the server to notice that its clients left
START_S = 3.0  # for the attackers to begin
IDLE_CPU_S = 0.1  # in one interval: an idle server's own work
LONGEST_AFTER_S = 60.0
TRAINER_KEY, AGENT_KEY = "the-key-of-honest-clients", "the-key-of-the-attackers"


@dataclass
class Beside:
    """Honest steps beside an attack, and what the attack cost the server. Times in seconds."""

    attack: str
    steps: int = 0  # resets too
    lost: int = 0  # steps or resets that failed for good
    median_s: float = math.nan
    longest_s: float = math.nan
    memory_mib: float = 0.0  # the peak, SQL workers included
    cpu_after_s: float = 0.0
    errors: list[str] = field(default_factory=list)


@contextmanager
def timed(took: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes, however it ends."""
    began = time.perf_counter()
    try:
        yield
    finally:
        took.append(time.perf_counter() - began)


async def play(url: str, scripts: list[Episode], seconds: float, result: Beside) -> list[float]:
    """Play honest episodes for `seconds`; returns the seconds of each reset and step.

    Steps without a reply `PATIENCE_S` later are lost; the time so far is counted for them.
    """
    took: list[float] = []
    until = time.monotonic() + seconds
    limits = ClientLimits(patience_s=seconds + PATIENCE_S)

    async def episodes(client: SQLEnvClient, script: Episode) -> None:
        while time.monotonic() < until:
            try:
                with timed(took):
                    reply = await client.reset(question_id=script.question_id, step_budget=STEPS)
                for action in script.actions:
                    await asyncio.sleep(THINK_S)
                    with timed(took):
                        await client.step(reply.episode_id, action)
            except SQLEnvError as error:
                result.lost += 1
                result.errors.append(f"{error.code}: {error.message[:100]}")

    async with SQLEnvClient(url, limits, api_key=TRAINER_KEY) as client:
        tasks = [asyncio.create_task(episodes(client, script)) for script in scripts]
        _, pending = await asyncio.wait(tasks, timeout=seconds + PATIENCE_S)
        result.lost += len(pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return took


@contextmanager
def watching(server: ServerProcess, result: Beside) -> Iterator[None]:
    """Record the peak of the server's memory in `result`."""
    end = threading.Event()

    def watch() -> None:
        while not end.wait(SAMPLE_S):
            result.memory_mib = max(result.memory_mib, memory_mib(server.pid or os.getpid()))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def attacking(attacks: Sequence[str], target: Target) -> Iterator[None]:
    """Run each attack in a process of its own until the block ends."""
    context = multiprocessing.get_context("spawn")
    attackers = [context.Process(target=run, args=(each, target), daemon=True) for each in attacks]
    try:
        for attacker in attackers:
            attacker.start()
        yield
    finally:
        for attacker in attackers:
            if attacker.pid is not None:
                attacker.kill()
                attacker.join()


def cpu_after(server: ServerProcess) -> float:
    """Return the CPU-seconds that the server works until it is idle again, for at most a minute."""
    time.sleep(SETTLE_S)
    start = last = server.cpu_s()
    until = time.monotonic() + LONGEST_AFTER_S
    while time.monotonic() < until:
        time.sleep(SETTLE_S)
        now = server.cpu_s()
        if now - last < IDLE_CPU_S:
            break
        last = now
    return last - start


def measure(name: str, attacks: Sequence[str], data_dir: Path, seconds: float) -> Beside:
    result, bank = Beside(name), QuestionBank.load(data_dir)
    scripts = make_scripts(bank, EPISODES, STEPS)
    questions = [question for split in bank.splits.values() for question in split]
    listed = next(question for question in questions if question.answer_type == "list")
    known = questions[0].question_id, questions[0].tables_involved[0], listed.question_id
    started = running_server(data_dir, api_key=TRAINER_KEY, agent_keys=AGENT_KEY)
    with started as server, watching(server, result):
        with attacking(attacks, Target("127.0.0.1", server.port, AGENT_KEY, *known)):
            time.sleep(START_S if attacks else 0.0)
            took = asyncio.run(play(server.url, scripts, seconds, result))
        result.cpu_after_s = cpu_after(server)
    if took:
        result.steps, result.longest_s = len(took), max(took)
        result.median_s = statistics.median(took)
    return result


def main(
    data: DataDir = DATA,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each attack.")] = 10.0,
    only: Annotated[
        list[str] | None, typer.Option(help="Attack to run, 'all' or 'none'. Repeatable.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Measure honest steps beside each attack, and beside all of them at once."""
    rows = {"none": [], **{name: [name] for name in ATTACKS}, "all": [*ATTACKS]}
    names = chosen(only, rows, "attack")
    logging.disable()  # the client warns of every retry
    results = []
    for name in names:
        results.append(asdict(measure(name, rows[name], data, seconds)))
        print(results[-1], flush=True)
    write_json(json_path, {"rows": results, "cpus": os.cpu_count()})


if __name__ == "__main__":
    typer.run(main)
