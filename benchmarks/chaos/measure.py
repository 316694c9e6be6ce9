"""One measurement: the same episodes undisturbed and under faults, and what differs."""

import asyncio
import hashlib
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos.cluster import ROOT, Cluster
from benchmarks.chaos.faults import Chaos, Fault
from benchmarks.chaos.soak import Played, answers, compare, play_all
from shared.client import ClientLimits, SQLEnvClient
from shared.run_files import EPISODES, METRICS, SUMMARY

TRAINING_TIMEOUT_S = 1800.0
WARM_UP_S = 1.0  # of a training's play before its next fault


@dataclass(frozen=True)
class Finding:
    """What was played under which faults, and what came of it. `lost`, `charged_twice` and
    `different` should be 0."""

    way: str
    episodes: int
    steps: int
    outcomes: dict[str, int]
    faults: dict[str, int]
    lost: int
    charged_twice: int
    different: int
    rebuilds: int
    retries: int | None  # a training's summary does not say
    seconds: float
    undisturbed_s: float
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return self.lost == self.charged_twice == self.different == 0


def client_of(urls: Sequence[str], stall_s: float) -> SQLEnvClient:
    """A client that is quick to notice, and patient as a training's is."""
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
) -> Finding:
    """Play `episodes` on one server that nobody disturbs, then on `urls` under `faults`, spread
    over their steps."""
    right = answers(data_dir)

    async def play(
        run: str, urls: Sequence[str], chaos: Chaos | None
    ) -> tuple[list[Played], SQLEnvClient, float]:
        began = time.monotonic()
        async with client_of(urls, stall_s) as client:
            played = await play_all(client, f"{way}-{run}", episodes, right, chaos=chaos)
        return played, client, time.monotonic() - began

    calm, _, calm_s = asyncio.run(play("calm", cluster.direct_urls[:1], None))
    steps = sum(one.steps for one in calm)
    with Chaos(cluster, faults, every=max(1, steps // (len(faults) + 1))) as chaos:
        played, client, seconds = asyncio.run(play("chaos", urls, chaos))
    return Finding(
        way,
        episodes,
        steps,
        dict(sorted(Counter(str(one.outcome) for one in played).items())),
        dict(sorted(chaos.done.items())),
        **compare(played, calm),
        rebuilds=client.stats.rebuilds,
        retries=client.stats.retries,
        seconds=round(seconds, 2),
        undisturbed_s=round(calm_s, 2),
        more={
            "moves": client.stats.moves,
            "servers_lost": client.stats.servers_lost,
            "requests": client.stats.requests,
            "errors": sorted({one.lost for one in played if one.lost})[:3],
        },
    )


def training(
    way: str,
    data_dir: Path,
    cluster: Cluster,
    urls: Sequence[str],
    scratch: Path,
    faults: Sequence[Fault],
    *options: str,
) -> Finding:
    """`python -m trainer train` on `urls`, undisturbed, then under `faults`, one after another
    until it ends.

    Both runs are left in `scratch`.
    """

    def train(name: str, run_faults: Sequence[Fault]) -> tuple[Path, Counter[str], float]:
        servers = [word for url in urls for word in ("--server", url)]
        command = [
            sys.executable,
            "-m",
            "trainer",
            "train",
            "--data",
            str(data_dir),
            "--out",
            str(scratch / name),
        ]
        began, done = time.monotonic(), Counter[str]()
        with (scratch / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *servers, *options], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                run = _under_faults(process, scratch / name, cluster, run_faults, done)
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            said = (scratch / f"{name}.log").read_text()
            raise RuntimeError(f"the training ended with {process.returncode}:\n{said}")
        return run, done, time.monotonic() - began

    calm, _, calm_s = train("calm", [])
    disturbed, done, seconds = train("chaos", faults)
    played, expected = _episodes(disturbed), _episodes(calm)
    summaries = [json.loads((run / SUMMARY).read_text()) for run in (disturbed, calm)]
    models = [summary["digests"]["trained_model"] for summary in summaries]
    return Finding(
        way,
        len(played),
        sum(len(one["actions"]) for one in played),
        dict(sorted(Counter(one["outcome"] for one in played).items())),
        dict(sorted(done.items())),
        lost=int(summaries[0]["episodes_lost"]),
        charged_twice=sum(one["steps"] != len(one["rewards"]) for one in played),
        different=abs(len(played) - len(expected))
        + sum((_digests(played) - _digests(expected)).values()),
        rebuilds=int(summaries[0]["train_rebuilds"]),
        retries=None,
        seconds=round(seconds, 2),
        undisturbed_s=round(calm_s, 2),
        more={"same_weights": models[0] == models[1], "train_steps": summaries[0]["train_steps"]},
    )


def _under_faults(
    process: "subprocess.Popen[bytes]",
    out: Path,
    cluster: Cluster,
    faults: Sequence[Fault],
    done: "Counter[str]",
) -> Path:
    """Do the faults, from the first optimiser step on, until the training ends or there is none
    left. -> its folder."""
    waiting, deadline = list(faults), time.monotonic() + TRAINING_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        metrics = list(out.glob(f"*/{METRICS}"))
        if waiting and metrics and metrics[0].stat().st_size:
            fault = waiting.pop(0)
            fault.begin(cluster)
            done[fault.kind] += 1
            time.sleep(fault.seconds)
            fault.end(cluster)
        time.sleep(WARM_UP_S)
    if process.poll() is None:
        raise RuntimeError(f"the training was not done after {TRAINING_TIMEOUT_S:g} s")
    return next(path.parent for path in out.glob(f"*/{METRICS}") if not path.parent.is_symlink())


def _episodes(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / EPISODES).read_text().splitlines()]


def _digests(episodes: Sequence[dict[str, Any]]) -> "Counter[str]":
    """How often each episode comes: its phase and step, question, actions, observations, rewards
    and outcome."""
    names = (
        "phase",
        "mode",
        "step",
        "question_id",
        "actions",
        "texts",
        "observations",
        "rewards",
        "outcome",
    )
    kept = (json.dumps([one[name] for name in names]).encode() for one in episodes)
    return Counter(hashlib.sha256(line).hexdigest() for line in kept)


def mean_fault_s(finding: Finding) -> float:
    """Seconds by which a fault lengthened the play."""
    count = sum(finding.faults.values())
    return (finding.seconds - finding.undisturbed_s) / count if count else math.nan
