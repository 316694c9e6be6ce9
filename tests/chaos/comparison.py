"""One measurement: the same episodes undisturbed and under faults, and what differs."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.client import ClientLimits, ClientStats, SQLEnvClient
from tests.chaos.cluster import Cluster
from tests.chaos.faults import Chaos, Fault
from tests.chaos.soak import Played, play_all


@dataclass(frozen=True)
class FaultOutcome:
    """What was played under which faults, and the result. `lost` to `different` should be 0."""

    way: str
    episodes: int
    steps: int
    outcomes: dict[str, int]
    faults: dict[str, int]
    lost: int
    counted_twice: int
    different: int
    rebuilds: int
    retries: int
    seconds: float
    undisturbed_s: float
    more: dict[str, Any]


def client_of(urls: Sequence[str], stall_s: float) -> SQLEnvClient:
    """Return a client that notices faults fast and is as patient as a training run's."""
    limits = ClientLimits(stall_s=stall_s, patience_s=600.0, backoff_s=0.1, longest_wait_s=2.0)
    return SQLEnvClient(urls, limits)


def soak(
    way: str,
    data_dir: Path,
    cluster: Cluster,
    urls: Sequence[str],
    episodes: int,
    faults: Sequence[Fault],
    *,
    stall_s: float = 3.0,
) -> FaultOutcome:
    """Play `episodes` on one undisturbed server, then on `urls` under `faults`; compare them."""

    async def play(
        run: str, urls: Sequence[str], chaos: Chaos | None
    ) -> tuple[list[Played], float, ClientStats]:
        began = time.monotonic()
        async with client_of(urls, stall_s) as client:
            played = await play_all(client, f"{way}-{run}", data_dir, episodes, chaos)
        return played, time.monotonic() - began, client.stats

    expected, undisturbed_s, _ = asyncio.run(play("calm", [cluster.servers[0].url], None))
    steps = sum(one.steps for one in expected)
    with Chaos(cluster, faults, every=max(1, steps // (len(faults) + 1))) as chaos:
        played, seconds, stats = asyncio.run(play("chaos", urls, chaos))
    differing = Counter(one.digest for one in played)
    differing.subtract(one.digest for one in expected)
    errors = [one.lost for one in played if one.lost is not None]
    more = {name: getattr(stats, name) for name in ("moves", "servers_lost", "requests")}
    return FaultOutcome(
        way,
        len(played),
        sum(one.steps for one in played),
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(chaos.done.items())),
        lost=len(errors),
        counted_twice=sum(one.counted_twice for one in played),
        different=max((+differing).total(), (-differing).total()),
        rebuilds=stats.rebuilds,
        retries=stats.retries,
        seconds=round(seconds, 2),
        undisturbed_s=round(undisturbed_s, 2),
        more={**more, "errors": sorted(set(errors))[:3]},
    )
