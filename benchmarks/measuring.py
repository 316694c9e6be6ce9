"""The benchmarks' options, scripted episodes and memory."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import psutil
import typer

from benchmarks.peers.worker import Episode
from env_server.questions import QuestionBank
from shared.console import failure

DataDir = Annotated[Path, typer.Option(help="Data directory.")]
JsonPath = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this JSON file.")
]
DATA = Path("data")


def make_scripts(bank: QuestionBank, count: int, steps: int) -> list[Episode]:
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
        scripts.append(Episode(question.question_id, actions))
    return scripts


def memory_mib(pid: int) -> float:
    """Return the memory of a process and its descendants, counting shared pages once."""
    process, total = psutil.Process(pid), 0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            total += member.memory_full_info().pss
    return total / 2**20


def chosen(given: Iterable[str] | None, known: Iterable[str], what: str) -> list[str]:
    """Return the names in `given`, or all that are known; exit code 2 if one is unknown."""
    known = list(known)
    names = list(given or known)
    if unknown := sorted({*names} - {*known}):
        raise failure(f"no {what} {unknown[0]!r}; the {what}s are {', '.join(known)}", 2)
    return names
