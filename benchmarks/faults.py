"""Measures whether a fault ever loses an episode, counts a step twice or changes a reply.

500 episodes on 3 servers, directly and behind HAProxy, each undisturbed first and then under
faults: SIGKILL, SIGSTOP for 10 s, restarts, network loss (connections cut, packets held back,
replies lost), and all servers down at once. `tests/faults/test_training.py` has trainings. Exit
code: 1 if anything was lost, counted twice or different.

    python -m benchmarks.faults [--data DIR] [--way WAY ...] [--json PATH]
"""

from collections.abc import Callable
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
from shared.seeds import MAX_SEED

WAYS = ("direct", "gateway")


def show(outcomes: list[FaultOutcome]) -> None:
    """Print a table with one column per measurement."""

    def counts(of: dict[str, int]) -> str:
        return "\n".join(f"{count} {name}" for name, count in of.items())

    rows: dict[str, Callable[[FaultOutcome], str]] = {
        "episodes": lambda one: f"{one.episodes:,}",
        "steps": lambda one: f"{one.steps:,}",
        "outcomes": lambda one: counts(one.outcomes),
        "faults": lambda one: str(sum(one.faults.values())),
        "  of which": lambda one: counts(one.faults),
        "episodes lost": lambda one: str(one.lost),
        "counted twice": lambda one: str(one.counted_twice),
        "differing episodes": lambda one: str(one.different),
        "rebuilt by replay": lambda one: str(one.rebuilds),
        "seconds": lambda one: f"{one.seconds:.1f}",
        "  undisturbed": lambda one: f"{one.undisturbed_s:.1f}",
    }
    cells = [(name, *map(cell, outcomes)) for name, cell in rows.items()]
    print_table("The same episodes under faults", ("", *(one.way for one in outcomes)), cells)


def main(
    data: DataDir = DATA,
    episodes: Annotated[int, typer.Option(help="Episodes per soak.")] = 500,
    faults: Annotated[int, typer.Option(help="Faults per soak.")] = 140,
    servers: Annotated[int, typer.Option(min=2, help="Environment servers.")] = 3,
    seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Random seed of the order of the faults.")
    ] = 0,
    way: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WAYS)}; repeatable.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Play the same episodes undisturbed and under faults, and compare them."""
    outcomes, skipped = [], {}
    ways = chosen(way, WAYS, "way")
    planned = plan(faults, servers, seed)
    with running_cluster(data, servers) as cluster:
        for name in ways:
            gated = name == "gateway"
            if gated and (reason := gateway.missing()):
                skipped[name] = reason
                print_line(Console(), f"skipped: {name}: {reason}")
                continue
            with gateway.running_gateway(cluster.urls) if gated else nullcontext() as front:
                urls = cluster.urls if front is None else [front.url]
                outcomes.append(soak(name, data, cluster, urls, episodes, planned))
            show(outcomes)
    findings = [asdict(one) for one in outcomes]
    write_json(json_path, {"servers": servers, "findings": findings, "skipped": skipped})
    if not outcomes or not all(one.clean for one in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
