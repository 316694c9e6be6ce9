"""One measurement: the same episodes undisturbed and under faults, and what differs."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.faults import Chaos, Fault
from benchmarks.chaos.soak import Played, play_all
from benchmarks.measuring import train
from shared.client import ClientLimits, ClientStats, SQLEnvClient
from shared.run_files import METRICS, EpisodeLine, numbered_lines, read_episode
from trainer.run.folder import Run, read_json

TRAINING_TIMEOUT_S = 1800.0
# what must be equal in an episode of a training with and without faults
COMPARED = {"phase", "mode", "step", "question_id", "actions", "texts", "observations", "rewards"}
COMPARED |= {"outcome"}


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
    retries: int | None  # None for a training, whose summary does not have it
    seconds: float
    undisturbed_s: float
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return self.lost == self.counted_twice == self.different == 0

    @property
    def mean_fault_s(self) -> float:
        """Seconds by which a fault prolonged the play, on average."""
        count = sum(self.faults.values())
        return (self.seconds - self.undisturbed_s) / count if count else math.nan


def client_of(urls: Sequence[str], stall_s: float) -> SQLEnvClient:
    """Return a client that notices faults fast and is as patient as a training's."""
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
    """Play `episodes` on one undisturbed server, then on `urls` under `faults`."""

    async def play(
        run: str, urls: Sequence[str], chaos: Chaos | None
    ) -> tuple[list[Played], ClientStats, float]:
        began = time.monotonic()
        async with client_of(urls, stall_s) as client:
            played = await play_all(client, f"{way}-{run}", data_dir, episodes, chaos)
        return played, client.stats, time.monotonic() - began

    calm, _, calm_s = asyncio.run(play("calm", [cluster.servers[0].url], None))
    steps = sum(one.steps for one in calm)
    with Chaos(cluster, faults, every=max(1, steps // (len(faults) + 1))) as chaos:
        played, stats, seconds = asyncio.run(play("chaos", urls, chaos))
    return FaultOutcome(
        way,
        episodes,
        steps,
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(chaos.done.items())),
        lost=sum(one.lost is not None for one in played),
        counted_twice=sum(one.counted_twice for one in played),
        different=sum(a.digest != b.digest for a, b in zip(played, calm, strict=True)),
        rebuilds=stats.rebuilds,
        retries=stats.retries,
        seconds=round(seconds, 2),
        undisturbed_s=round(calm_s, 2),
        more={
            "moves": stats.moves,
            "servers_lost": stats.servers_lost,
            "requests": stats.requests,
            "errors": sorted({one.lost for one in played if one.lost})[:3],
        },
    )


def training(
    way: str,
    cluster: Cluster,
    urls: Sequence[str],
    scratch: Path,
    faults: Sequence[Fault],
    options: Sequence[str],
) -> FaultOutcome:
    """Run `python -m trainer train` on `urls`, undisturbed and then under `faults`, one after
    another until it ends. Both runs are left in `scratch`.
    """
    options = (*options, *(word for url in urls for word in ("--server", url)))

    def play(name: str, faults: Sequence[Fault]) -> tuple[Run, Counter[str], float]:
        began, done, waiting = time.monotonic(), Counter[str](), list(faults)

        def disturb(pid: int) -> None:
            """Run the next fault, from the first optimiser step on."""
            if time.monotonic() > began + TRAINING_TIMEOUT_S:
                raise RuntimeError(f"the training did not end within {TRAINING_TIMEOUT_S:g} s")
            metrics = next((scratch / name).glob(f"*/{METRICS}"), None)
            if waiting and metrics and metrics.stat().st_size:
                fault = waiting.pop(0)
                with fault.in_force(cluster):
                    done[fault.kind] += 1
                    time.sleep(fault.seconds)

        return train(scratch / name, options, disturb), done, time.monotonic() - began

    calm, _, calm_s = play("calm", [])
    disturbed, done, seconds = play("chaos", faults)
    played, expected = _episodes(disturbed), _episodes(calm)
    summaries = [read_json(run.summary) for run in (disturbed, calm)]
    models = [summary["digests"]["trained_model"] for summary in summaries]
    return FaultOutcome(
        way,
        len(played),
        sum(len(one.actions) for one in played),
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(done.items())),
        lost=int(summaries[0]["episodes_lost"]),
        counted_twice=sum(one.steps != len(one.rewards) for one in played),
        different=abs(len(played) - len(expected))
        + (_contents(played) - _contents(expected)).total(),
        rebuilds=int(summaries[0]["train_rebuilds"]),
        retries=None,
        seconds=round(seconds, 2),
        undisturbed_s=round(calm_s, 2),
        more={"same_weights": models[0] == models[1], "train_steps": summaries[0]["train_steps"]},
    )


def _episodes(run: Run) -> list[EpisodeLine]:
    return [read_episode(line) for _, line in numbered_lines(run.episodes)]


def _contents(episodes: Sequence[EpisodeLine]) -> "Counter[str]":
    """Return how often each episode occurs, as the JSON of its `COMPARED` fields."""
    return Counter(one.model_dump_json(include=COMPARED) for one in episodes)
