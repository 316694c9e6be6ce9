"""What a player of a peer gets, and how its worker calls it, a wave for each request.

It runs in the peer's environment, so this module imports only the standard library.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.worker import Answer


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
Player = Callable[[Workload, str], AbstractAsyncContextManager[Play]]


def write_workload(path: Path, workload: Workload) -> None:
    """Write a workload as JSON."""
    path.write_text(json.dumps([str(workload.data.resolve()), workload.episodes]))


def read_workload(path: Path) -> Workload:
    """Read what `write_workload` wrote."""
    data, episodes = json.loads(path.read_text())
    return Workload(Path(data), [Episode(*one) for one in episodes])


def find_player(name: str) -> Player:
    """Return the function that `module:function` names, in `players/`."""
    module, _, function = name.partition(":")
    found: Player = getattr(import_module(f"benchmarks.peers.players.{module}"), function)
    return found


@asynccontextmanager
async def opened(name: str, workload: str, url: str) -> AsyncIterator[Answer]:
    """Play the workload in a file; the URL is empty if the peer has no server."""
    async with find_player(name)(read_workload(Path(workload)), url) as play:

        async def wave(_: Any) -> float:
            return await play()

        yield wave
