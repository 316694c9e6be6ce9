"""One measurement: the same episodes undisturbed and under faults, and what differs."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos.cluster import Cluster
from benchmarks.chaos.faults import Chaos, Fault
from benchmarks.chaos.soak import Played, play_all
from benchmarks.measuring import train
from shared.client import ClientLimits, ClientStats, SQLEnvClient
from shared.run_files import METRICS, EpisodeLine, numbered_lines, read_episode
from trainer.run.folder import read_json

TRAINING_TIMEOUT_S = 1800.0
# what must be equal in an episode of a training run with and without faults
COMPARED = {"phase", "mode", "step", "question_id", "actions", "texts", "observations", "rewards"}
COMPARED |= {"outcome"}
Timed = tuple[list[Played], float]  # the episodes of one play, and its seconds


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
    retries: int | None  # None for a training run, whose summary does not have it
    seconds: float
    undisturbed_s: float
    more: dict[str, Any]

    @property
    def clean(self) -> bool:
        return self.lost == self.counted_twice == self.different == 0

    @property
    def mean_fault_s(self) -> float:
        """Seconds by which a fault prolonged the play, on average."""
        count = sum(self.faults.values())
        return (self.seconds - self.undisturbed_s) / count if count else math.nan


def client_of(urls: Sequence[str], stall_s: float) -> SQLEnvClient:
    """Return a client that notices faults fast and is as patient as a training run's."""
    limits = ClientLimits(stall_s=stall_s, patience_s=600.0, backoff_s=0.1, longest_wait_s=2.0)
    return SQLEnvClient(urls, limits)


def outcome_of(
    way: str, calm: Timed, disturbed: Timed, faults: Mapping[str, int], **counts: Any
) -> FaultOutcome:
    """Compare the episodes that `faults` disturbed with the same undisturbed ones."""
    (expected, undisturbed_s), (played, seconds) = calm, disturbed
    differing = Counter(one.digest for one in played)
    differing.subtract(one.digest for one in expected)
    return FaultOutcome(
        way,
        len(played),
        sum(one.steps for one in played),
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(faults.items())),
        counted_twice=sum(one.counted_twice for one in played),
        different=max((+differing).total(), (-differing).total()),
        seconds=round(seconds, 2),
        undisturbed_s=round(undisturbed_s, 2),
        **counts,
    )


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

    async def play(run: str, urls: Sequence[str], chaos: Chaos | None) -> tuple[Timed, ClientStats]:
        began = time.monotonic()
        async with client_of(urls, stall_s) as client:
            played = await play_all(client, f"{way}-{run}", data_dir, episodes, chaos)
        return (played, time.monotonic() - began), client.stats

    calm, _ = asyncio.run(play("calm", [cluster.servers[0].url], None))
    steps = sum(one.steps for one in calm[0])
    with Chaos(cluster, faults, every=max(1, steps // (len(faults) + 1))) as chaos:
        disturbed, stats = asyncio.run(play("chaos", urls, chaos))
    errors = [one.lost for one in disturbed[0] if one.lost is not None]
    more = {name: getattr(stats, name) for name in ("moves", "servers_lost", "requests")}
    return outcome_of(
        way,
        calm,
        disturbed,
        chaos.done,
        lost=len(errors),
        rebuilds=stats.rebuilds,
        retries=stats.retries,
        more={**more, "errors": sorted(set(errors))[:3]},
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
    done = Counter[str]()

    def play(name: str, faults: Sequence[Fault]) -> tuple[Timed, dict[str, Any]]:
        began, waiting = time.monotonic(), list(faults)

        def disturb(pid: int) -> None:
            """Run the next fault, from the first optimizer step on."""
            if time.monotonic() > began + TRAINING_TIMEOUT_S:
                raise RuntimeError(f"the training did not end within {TRAINING_TIMEOUT_S:g} s")
            metrics = next((scratch / name).glob(f"*/{METRICS}"), None)
            if waiting and metrics and metrics.stat().st_size:
                fault = waiting.pop(0)
                with fault.in_force(cluster):
                    done[fault.kind] += 1
                    time.sleep(fault.seconds)

        run = train(scratch / name, options, disturb)
        lines = [read_episode(line) for _, line in numbered_lines(run.episodes)]
        return ([played(one) for one in lines], time.monotonic() - began), read_json(run.summary)

    def played(one: EpisodeLine) -> Played:
        content = one.model_dump_json(include=COMPARED)
        return Played(content, len(one.actions), one.outcome, one.steps != len(one.rewards))

    (calm, expected), (disturbed, summary) = play("calm", []), play("chaos", faults)
    models = [one["digests"]["trained_model"] for one in (expected, summary)]
    return outcome_of(
        way,
        calm,
        disturbed,
        done,
        lost=int(summary["episodes_lost"]),
        rebuilds=int(summary["train_rebuilds"]),
        retries=None,
        more={"same_weights": models[0] == models[1], "train_steps": summary["train_steps"]},
    )
