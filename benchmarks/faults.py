"""Measures whether a fault ever loses an episode, counts a step twice or changes a reply.

500 episodes on 3 servers, directly and behind HAProxy, each undisturbed first and then under
faults: SIGKILL, SIGSTOP for 10 s, restarts, network loss (connections cut, packets held back,
replies lost), and all servers down at once. `tests/trainer/grpo/test_faults.py` has trainings. Exit
code: 1 if anything was lost, counted twice or different.

    python -m benchmarks.faults [--data DIR] [--way WAY ...] [--json PATH]
"""

from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.chaos import gateway
from benchmarks.chaos.cluster import running_cluster
from benchmarks.chaos.faults import plan
from benchmarks.chaos.measure import FaultOutcome, soak
from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, print_table
from shared.console import print_line, write_json

SERVERS = 3
WAYS = ("direct", "gateway")
HEADINGS = (
    "way", "episodes", "steps", "lost", "counted twice", "different", "rebuilt", "seconds",
    "undisturbed", "faults",
)  # fmt: skip


def row(one: FaultOutcome) -> tuple[str, ...]:
    """Return a way's line of the table."""
    kinds = ", ".join(f"{count} {name}" for name, count in one.faults.items())
    counts = (one.episodes, one.steps, one.lost, one.counted_twice, one.different, one.rebuilds)
    seconds = (f"{one.seconds:.1f}", f"{one.undisturbed_s:.1f}")
    return (one.way, *(f"{count:,}" for count in counts), *seconds, kinds)


def main(
    data: DataDir = DATA,
    episodes: Annotated[int, typer.Option(help="Episodes per soak.")] = 500,
    faults: Annotated[int, typer.Option(help="Faults per soak.")] = 140,
    way: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WAYS)}; repeatable.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Play the same episodes undisturbed and under faults, and compare them."""
    outcomes, skipped = [], {}
    ways = chosen(way, WAYS, "way")
    planned = plan(faults, SERVERS)
    with running_cluster(data, SERVERS) as cluster:
        for name in ways:
            gated = name == "gateway"
            if gated and (reason := gateway.missing()):
                skipped[name] = reason
                print_line(Console(), f"skipped: {name}: {reason}")
                continue
            with gateway.running_gateway(cluster.urls) if gated else nullcontext() as front:
                urls = cluster.urls if front is None else [front.url]
                outcomes.append(soak(name, data, cluster, urls, episodes, planned))
    print_table("The same episodes under faults", HEADINGS, map(row, outcomes))
    findings = [asdict(one) for one in outcomes]
    write_json(json_path, {"servers": SERVERS, "findings": findings, "skipped": skipped})
    if not outcomes or any(one.lost + one.counted_twice + one.different for one in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
