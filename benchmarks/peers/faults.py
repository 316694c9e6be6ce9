"""What faults of a server do to a training: SQLEnv, and OpenEnv with TRL, in one harness.

    python -m benchmarks.peers.faults [--peer NAME] [--json PATH]

`benchmarks/peers/training.py` describes the training. Both peers host SQLEnv's environment, are
played by TRL's loop through an `environment_factory`'s tools, and have their default limits.
Afterwards, weights are compared with those of the undisturbed training.
"""

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath
from benchmarks.peers.environments import CACHE, make_environment, report_each
from benchmarks.peers.processes import Worker
from benchmarks.peers.training import PEERS

TIMEOUT_S = 3600.0


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


def main(
    data: DataDir = DATA,
    peer: Annotated[list[str] | None, typer.Option(help="Peer; repeatable.")] = None,
    cache: Annotated[Path, typer.Option(help="Folder of the peers' environments.")] = CACHE,
    json_path: JsonPath = None,
) -> None:
    """Compare what faults of a server do to a training."""
    report_each(peer, PEERS, lambda name: measure(name, data, cache), json_path)


if __name__ == "__main__":
    typer.run(main)
