"""Does a fault ever lose an episode, charge it twice or change a byte of it? Real servers, killed
and cut off.

500 episodes on 3 servers, and a training of `python -m trainer`, directly and behind HAProxy, each
undisturbed first, then under faults, 20 or more of every kind: SIGKILL, SIGSTOP for 10 s, restarts,
network loss (connections cut, packets held back, replies lost), and now and then all servers gone
at once. A training ends when it has made its steps, so it meets fewer. Exit status 1 where anything
was lost, charged twice or different.

    python benchmarks/faults.py --data data --out runs/faults.json
"""

import json
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from a checkout, installed or not

from benchmarks.chaos import gateway
from benchmarks.chaos.cluster import running_cluster
from benchmarks.chaos.faults import plan
from benchmarks.chaos.measure import Finding, mean_fault_s, soak, training

WAYS = ("direct", "gateway", "training", "gateway training")
TRAINING_OPTIONS = ("--eval-limit", "48", "--eval-every", "0", "--set", "server_wait_s=300")
console = Console()


def table(findings: list[Finding]) -> Table:
    """A column a measurement."""
    rows: dict[str, list[str]] = {
        "episodes": [f"{one.episodes:,}" for one in findings],
        "steps": [f"{one.steps:,}" for one in findings],
        "outcomes": [
            "\n".join(f"{count} {name}" for name, count in one.outcomes.items()) for one in findings
        ],
        "faults": [str(sum(one.faults.values())) for one in findings],
        "  of which": [
            "\n".join(f"{count} {kind}" for kind, count in one.faults.items()) for one in findings
        ],
        "episodes lost": [str(one.lost) for one in findings],
        "charged twice": [str(one.charged_twice) for one in findings],
        "other digests": [str(one.different) for one in findings],
        "rebuilt by replay": [str(one.rebuilds) for one in findings],
        "seconds": [f"{one.seconds:.1f}" for one in findings],
        "  undisturbed": [f"{one.undisturbed_s:.1f}" for one in findings],
        "  a fault": [f"{mean_fault_s(one):.1f}" for one in findings],
    }
    found = Table("", *(one.way for one in findings), title="The same episodes under faults")
    for name, cells in rows.items():
        found.add_row(name, *cells)
    return found


def main(
    data: Annotated[Path, typer.Option(help="Data directory that the servers serve.")] = Path(
        "data"
    ),
    episodes: Annotated[int, typer.Option(help="Episodes of each soak.")] = 500,
    faults: Annotated[
        int, typer.Option(help="Faults of each soak; of the training, at most.")
    ] = 140,
    servers: Annotated[int, typer.Option(min=2, help="Environment servers.")] = 3,
    steps: Annotated[int, typer.Option(help="Optimiser steps of the training.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the order of the faults.")] = 0,
    way: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(WAYS)}; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path("runs/faults.json"),
) -> None:
    findings, skipped = [], {}
    for one in way or WAYS:
        if one not in WAYS:
            raise typer.BadParameter(f"{one!r} is none of {', '.join(WAYS)}", param_hint="--way")
    with (
        tempfile.TemporaryDirectory(prefix="sqlenv-faults-") as scratch,
        running_cluster(data, servers) as cluster,
    ):
        for one in way or WAYS:
            if "gateway" in one and (reason := gateway.missing()):
                skipped[one] = reason
                console.print(f"skipped: {one}: {reason}", markup=False)
                continue
            planned = plan(faults, servers, seed)
            with (
                gateway.running_gateway(cluster.urls)
                if "gateway" in one
                else nullcontext() as front
            ):
                urls = cluster.urls if front is None else [front.url]
                if "training" in one:
                    options = ("--steps", str(steps), *TRAINING_OPTIONS)
                    folder = Path(scratch, one.replace(" ", "-"))
                    folder.mkdir()
                    findings.append(
                        training(one, data.resolve(), cluster, urls, folder, planned, *options)
                    )
                else:
                    findings.append(soak(one, data, cluster, urls, episodes, planned))
            console.print(table(findings))
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = {"servers": servers, "findings": [asdict(one) for one in findings], "skipped": skipped}
    out.write_text(json.dumps(kept, indent=2) + "\n")
    if not findings or not all(one.clean for one in findings):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
