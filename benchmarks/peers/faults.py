"""What faults of a server do to a training: SQLEnv, and OpenEnv with TRL, in one harness.

    python -m benchmarks.peers.faults [--peer NAME] [--json PATH]

`benchmarks/peers/training.py` describes the training. Both peers host SQLEnv's environment, are
played by TRL's loop through an `environment_factory`'s tools, and have their default limits.
Afterwards, weights are compared with those of the undisturbed training.
"""

import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, print_table
from benchmarks.peers.environments import CACHE, NotMeasured, make_environment
from benchmarks.peers.processes import Worker
from benchmarks.peers.training import EPISODES, PEERS, UPDATES
from shared.console import write_json

TIMEOUT_S = 3600.0
HEADINGS = (
    "peer and fault", "failed calls", "episodes lost", "rewards that became 0", "left out",
    "replies of another step", "seconds", "undisturbed",
)  # fmt: skip
COUNTS = ("failed_calls", "lost", "became_zero", "left_out", "of_another_step")


def peer_python(name: str, cache: Path) -> Path:
    """Return the Python of a peer, which finds TRL and torch here, after its own packages."""
    if name == "sqlenv":
        return Path(sys.executable)
    python = make_environment(name, cache)
    [packages] = python.parents[1].glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "sqlenv.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return python


def measure(name: str, data: Path, cache: Path) -> dict[str, Any]:
    """Return what `training.measure` finds in a process of the peer's."""
    python, packages = peer_python(name, cache), PEERS[name].packages
    with tempfile.TemporaryDirectory(prefix="sqlenv-peers-") as scratch:
        log, arguments = Path(scratch, "log"), (name, str(data.resolve()))
        with Worker(python, "training:opened", packages, *arguments, log=log) as worker:
            found = worker.ask(None, TIMEOUT_S)
            return {"versions": worker.versions, **found}


def rows(name: str, found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a line of the table for each fault."""
    usual = median(one["seconds"] for one in found["undisturbed"])
    for one in found["disturbed"]:
        if one["fault"]:
            counts = (str(one[key]) for key in COUNTS)
            yield f"{name}: {one['fault']}", *counts, f"{one['seconds']:.1f}", f"{usual:.1f}"


def main(
    data: DataDir = DATA,
    peer: Annotated[list[str] | None, typer.Option(help="Peer; repeatable.")] = None,
    cache: Annotated[Path, typer.Option(help="Folder of the peers' environments.")] = CACHE,
    json_path: JsonPath = None,
) -> None:
    """Compare what faults of a server do to a training."""
    report: dict[str, Any] = {}
    table: list[tuple[str, ...]] = []
    notes = []
    for name in chosen(peer, PEERS, "peer"):
        print(f"training with {name}", file=sys.stderr, flush=True)
        try:
            found = report[name] = measure(name, data, cache)
        except NotMeasured as error:
            report[name] = {"not_measured": str(error)}
            notes.append(f"not measured: {name}: {error}")
            continue
        table += rows(name, found)
        versions = ", ".join(f"{package} {number}" for package, number in found["versions"].items())
        notes.append(
            f"{name} ({versions}): after {UPDATES} updates the weights differ by "
            f"{found['weights_differ']:.2%} of what the undisturbed training changed"
        )
    print_table(f"Updates of {EPISODES} episodes, each with a fault", HEADINGS, table)
    print(*notes, sep="\n")
    write_json(json_path, report)


if __name__ == "__main__":
    typer.run(main)
