"""The benchmarks' options, scripted episodes, timings, memory and tables."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import psutil
import typer

from env_server.questions import QuestionBank
from shared.console import failure, table_console
from trainer.run.console import table

DataDir = Annotated[Path, typer.Option(help="Data directory.")]
JsonPath = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this JSON file.")
]
DATA = Path("data")


@dataclass(frozen=True)
class Script:
    """The actions of one episode."""

    question_id: str
    actions: list[str]


def make_scripts(bank: QuestionBank, count: int, steps: int) -> list[Script]:
    """Return scripts of a DESCRIBE, a SAMPLE, look-ups by row id and an ANSWER: `steps` actions."""
    questions = [question for split in bank.splits.values() for question in split]
    scripts = []
    for number in range(count):
        question = questions[number * len(questions) // count]
        name = question.tables_involved[0]
        lookups = [
            f'QUERY: SELECT * FROM "{name}" WHERE rowid = {number + step}'
            for step in range(steps - 3)
        ]
        actions = [f"DESCRIBE: {name}", f"SAMPLE: {name}", *lookups, "ANSWER: 42"]
        scripts.append(Script(question.question_id, actions))
    return scripts


@dataclass
class Timing:
    """What the steps of one way took."""

    way: str
    steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @contextmanager
    def adding(self, steps: int, cpu_s: Callable[[], float] = time.process_time) -> Iterator[None]:
        """Add the time of the block, which takes `steps` steps. `cpu_s` reads a CPU clock."""
        started, cpu_started = time.perf_counter(), cpu_s()
        yield
        self.wall_s += time.perf_counter() - started
        self.cpu_s += cpu_s() - cpu_started
        self.steps += steps

    @property
    def steps_per_s(self) -> float:
        """Steps per second of wall time."""
        return self.steps / self.wall_s

    @property
    def cpu_us(self) -> float:
        """CPU time per step."""
        return self.cpu_s / self.steps * 1e6


def memory_mib(pid: int) -> float:
    """Return the memory of a process and its descendants, counting shared pages once."""
    process, total = psutil.Process(pid), 0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            total += member.memory_full_info().pss
    return total / 2**20


def chosen(given: Collection[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Return the names in `given`, or all that are known; exit code 2 if one is unknown."""
    known = list(known)
    if unknown := sorted(set(given or ()) - set(known)):
        raise failure(f"no {what} {unknown[0]!r}; the {what}s are {', '.join(known)}", 2)
    return list(given or known)


def print_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; all columns but the first are aligned to the right."""
    table_console().print(table(title, headings, rows))
