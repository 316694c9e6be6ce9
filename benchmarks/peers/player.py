"""The process that plays one peer's episodes, a wave for each line that it reads.

    python -m benchmarks.peers.player PLAYER WORKLOAD URL [PACKAGE]...

It runs in the peer's environment, so this module imports only the standard library. PLAYER is
`module:function` in `players/`, WORKLOAD a JSON file, URL empty if the peer has no server. The
first line of output has the versions of the packages, each further one the sum of a wave's rewards.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

MODULE = "benchmarks.peers.player"


class Episode(NamedTuple):
    """The actions of one episode: the last one is its ANSWER."""

    question_id: str
    actions: list[str]

    @property
    def turns(self) -> list[tuple[str, str]]:
        """The type and the argument of each action."""
        return [(kind, text) for kind, _, text in (one.partition(": ") for one in self.actions)]


class Workload(NamedTuple):
    """What every peer plays: all episodes at once, each from its reset to its ANSWER."""

    data: Path
    episodes: list[Episode]


Play = Callable[[], Awaitable[float]]  # plays a wave and returns the sum of its rewards
Opened = AbstractAsyncContextManager[Play]
Player = Callable[[Workload, str], Opened]


def write_workload(path: Path, workload: Workload) -> None:
    """Write a workload as JSON."""
    path.write_text(json.dumps([str(workload.data.resolve()), workload.episodes]))


def read_workload(path: Path) -> Workload:
    """Read what `write_workload` wrote."""
    data, episodes = json.loads(path.read_text())
    return Workload(Path(data), [Episode(*one) for one in episodes])


def find_player(name: str) -> Player:
    """Return the function that `module:function` names."""
    module, _, function = name.partition(":")
    found: Player = getattr(import_module(f"benchmarks.peers.players.{module}"), function)
    return found


async def serve(opened: Opened, packages: list[str], reply: Callable[[object], None]) -> None:
    """Play a wave for each line of stdin, until it ends."""
    async with opened as play:
        reply({name: version(name) for name in packages})
        # in a thread, so that open connections answer pings meanwhile
        while await asyncio.to_thread(sys.stdin.readline):
            reply(await play())


def main(name: str, workload: str, url: str, *packages: str) -> None:
    """Serve; what a package prints goes to stderr."""
    replies, sys.stdout = sys.stdout, sys.stderr

    def reply(value: object) -> None:
        print(json.dumps(value), file=replies, flush=True)

    opened = find_player(name)(read_workload(Path(workload)), url)
    asyncio.run(serve(opened, [*packages], reply))


if __name__ == "__main__":
    main(*sys.argv[1:])
