"""Measure whether a fault ever loses an episode, counts a step twice or changes a reply.

    python -m tests.chaos [--data DIR] [--way WAY] > chaos.json

The same episodes on 3 servers, directly and behind HAProxy, each undisturbed first and then under
faults: SIGKILL, SIGSTOP for 10 s, restarts, network loss (connections cut, packets held back,
replies lost), and all servers down at once. `tests/trainer/grpo/test_faults.py` has trainings. Exit
code: 1 if anything was lost, counted twice or different.
"""

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from shared.console import failure
from tests.chaos import gateway
from tests.chaos.cluster import running_cluster
from tests.chaos.faults import plan
from tests.chaos.soak import soak

SERVERS = 3
Way = Literal["direct", "gateway"]


def main(
    data: Annotated[Path, typer.Option(help="Data directory.")] = Path("data"),
    episodes: Annotated[int, typer.Option(help="Episodes per way.")] = 500,
    faults: Annotated[int, typer.Option(help="Faults per way.")] = 140,
    way: Annotated[Way | None, typer.Option(help="Default: both.")] = None,
) -> None:
    """Play the same episodes undisturbed and under faults, and compare them."""
    ways = [way] if way else get_args(Way)
    if "gateway" in ways and (reason := gateway.missing()):
        raise failure(f"{reason}; or only measure --way direct")
    outcomes = []
    with running_cluster(data, SERVERS) as cluster:
        for name in ways:
            gated = name == "gateway"
            with gateway.running_gateway(cluster.urls) if gated else nullcontext() as front:
                urls = cluster.urls if front is None else [front.url]
                planned = plan(faults, SERVERS)
                outcomes.append(soak(name, data, cluster, urls, episodes, planned))
    print(json.dumps([asdict(one) for one in outcomes], indent=1))
    if any(one.lost + one.counted_twice + one.different for one in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
