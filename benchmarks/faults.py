"""Measures whether a fault ever loses an episode, counts a step twice or changes a reply.

500 episodes on 3 servers and a training of `python -m trainer`, directly and behind HAProxy, each
undisturbed first and then under faults: SIGKILL, SIGSTOP for 10 s, restarts, network loss
(connections cut, packets held back, replies lost), and all servers down at once. A training ends
when it has made its steps, so it meets fewer faults. Exits with 1 if anything was lost, counted
twice or different.

    python -m benchmarks.faults [--data DIR] [--way WAY ...] [--json PATH]
"""

import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.chaos import gateway
from benchmarks.chaos.cluster import running_cluster
from benchmarks.chaos.faults import plan
from benchmarks.chaos.measure import FaultOutcome, soak, training
from shared.console import print_line, write_json

WAYS = ("direct", "gateway", "training", "gateway training")
TRAINING_OPTIONS = ("--eval-limit", "48", "--eval-every", "0", "--set", "server_wait_s=300")
console = Console()


def lines(counts: dict[str, int]) -> str:
    return "\n".join(f"{count} {name}" for name, count in counts.items())


def table(results: list[FaultOutcome]) -> Table:
    """Return a table with one column per measurement."""
    rows = {
        "episodes": [f"{one.episodes:,}" for one in results],
        "steps": [f"{one.steps:,}" for one in results],
        "outcomes": [lines(one.outcomes) for one in results],
        "faults": [str(sum(one.faults.values())) for one in results],
        "  of which": [lines(one.faults) for one in results],
        "episodes lost": [str(one.lost) for one in results],
        "counted twice": [str(one.counted_twice) for one in results],
        "other digests": [str(one.different) for one in results],
        "rebuilt by replay": [str(one.rebuilds) for one in results],
        "seconds": [f"{one.seconds:.1f}" for one in results],
        "  undisturbed": [f"{one.undisturbed_s:.1f}" for one in results],
        "  per fault": [f"{one.mean_fault_s:.1f}" for one in results],
    }
    made = Table("", *(one.way for one in results), title="The same episodes under faults")
    for name, cells in rows.items():
        made.add_row(name, *cells)
    return made


def main(
    data: Annotated[Path, typer.Option(help="Data directory of the servers.")] = Path("data"),
    episodes: Annotated[int, typer.Option(help="Episodes per soak.")] = 500,
    faults: Annotated[int, typer.Option(help="Faults per soak; per training, at most.")] = 140,
    servers: Annotated[int, typer.Option(min=2, help="Environment servers.")] = 3,
    steps: Annotated[int, typer.Option(help="Optimiser steps of a training.")] = 30,
    seed: Annotated[int, typer.Option(help="Random seed of the order of the faults.")] = 0,
    way: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WAYS)}; may be repeated.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers here as JSON.")
    ] = None,
) -> None:
    """Play the same episodes undisturbed and under faults, and compare them."""
    results, skipped = [], {}
    for name in way or WAYS:
        if name not in WAYS:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(WAYS)}", param_hint="way")
    planned = plan(faults, servers, seed)
    with (
        tempfile.TemporaryDirectory(prefix="sqlenv-faults-") as scratch,
        running_cluster(data, servers) as cluster,
    ):
        for name in way or WAYS:
            gated = "gateway" in name
            if gated and (reason := gateway.missing()):
                skipped[name] = reason
                print_line(console, f"skipped: {name}: {reason}")
                continue
            with gateway.running_gateway(cluster.urls) if gated else nullcontext() as front:
                urls = cluster.urls if front is None else [front.url]
                if "training" in name:
                    options = ("--steps", str(steps), *TRAINING_OPTIONS)
                    folder = Path(scratch, name.replace(" ", "-"))
                    folder.mkdir()
                    result = training(
                        name, data.resolve(), cluster, urls, folder, planned, *options
                    )
                else:
                    result = soak(name, data, cluster, urls, episodes, planned)
            results.append(result)
            console.print(table(results))
    findings = [asdict(one) for one in results]
    write_json(json_path, {"servers": servers, "findings": findings, "skipped": skipped})
    if not results or not all(one.clean for one in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
