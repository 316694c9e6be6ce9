"""Generators that ask for SQL, and the two ways to run them: in process and on an event loop."""

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from env_server.sql import SqlJob, SqlResult

T = TypeVar("T")
Jobs = Generator[SqlJob, SqlResult, T]


def drive(jobs: Jobs[T], run: Callable[[SqlJob], SqlResult]) -> T:
    """Run a generator of jobs to its end, in process."""
    try:
        job = next(jobs)
        while True:
            job = jobs.send(run(job))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive_async(jobs: Jobs[T], run: Callable[[SqlJob], Awaitable[SqlResult]]) -> T:
    """Run a generator of jobs to its end on an event loop."""
    try:
        job = next(jobs)
        while True:
            job = jobs.send(await run(job))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
