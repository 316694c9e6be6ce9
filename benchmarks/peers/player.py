"""What a player of a peer gets: the episodes, from a file.

It runs in the peer's environment, so this module imports only the standard library.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


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


Play = Callable[[Any], Awaitable[float]]  # plays a wave and returns the sum of its rewards


def write_workload(path: Path, workload: Workload) -> None:
    path.write_text(json.dumps([str(workload.data.resolve()), workload.episodes]))


def read_workload(path: str) -> Workload:
    data, episodes = json.loads(Path(path).read_text())
    return Workload(Path(data), [Episode(*one) for one in episodes])


def waves(play: Callable[..., Awaitable[float]], *of_each: Sequence[Any]) -> Play:
    """Return what plays all episodes at once; `of_each` are the arguments of each `play`."""

    async def wave(_: object) -> float:
        return sum(await asyncio.gather(*map(play, *of_each)))

    return wave
