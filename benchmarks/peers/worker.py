"""A process in a peer's environment that answers each line that it reads with another, in JSON.

    python -m benchmarks.peers.worker MODULE:FUNCTION PACKAGES [ARGUMENT]...

FUNCTION, of a module in this folder, takes the arguments and returns an async context manager of
what turns a request into its reply: a player's plays a wave and returns the sum of its rewards. The
first line has the versions of PACKAGES, which commas separate. This module imports only the
standard library.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

MODULE = "benchmarks.peers.worker"
Answer = Callable[[Any], Awaitable[Any]]
Opened = AbstractAsyncContextManager[Answer]


class Episode(NamedTuple):
    """The actions of one episode: the last one is its ANSWER."""

    question_id: str
    actions: list[str]

    @property
    def turns(self) -> list[tuple[str, str]]:
        return [(kind, text) for kind, _, text in (one.partition(": ") for one in self.actions)]


class Workload(NamedTuple):
    """What every peer plays: all episodes at once, each from its reset to its ANSWER."""

    data: Path
    episodes: list[Episode]


def write_workload(path: Path, workload: Workload) -> None:
    path.write_text(json.dumps([str(workload.data.resolve()), workload.episodes]))


def read_workload(path: str) -> Workload:
    data, episodes = json.loads(Path(path).read_text())
    return Workload(Path(data), [Episode(*one) for one in episodes])


def waves(play: Callable[..., Awaitable[float]], *of_each: Sequence[Any]) -> Answer:
    """Return what plays all episodes at once; `of_each` are the arguments of each `play`."""

    async def wave(_: object) -> float:
        return sum(await asyncio.gather(*map(play, *of_each)))

    return wave


def find(name: str) -> Callable[..., Opened]:
    module, _, function = name.partition(":")
    found: Callable[..., Opened] = getattr(import_module(f"benchmarks.peers.{module}"), function)
    return found


async def main(name: str, packages: str, *arguments: str) -> None:
    """Answer the lines of stdin until it ends; what a package prints goes to stderr."""
    replies, sys.stdout = sys.stdout, sys.stderr

    def reply(value: Any) -> None:
        print(json.dumps(value), file=replies, flush=True)

    async with find(name)(*arguments) as answer:
        reply({name: version(name) for name in packages.split(",") if name})
        # in a thread, so that open connections answer pings meanwhile
        while line := await asyncio.to_thread(sys.stdin.readline):
            reply(await answer(json.loads(line)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
