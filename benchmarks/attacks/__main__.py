"""What attacks cost honest clients: 64 honest episodes beside each attack, and beside all at once.

    python -m benchmarks.attacks [--seconds 10] [--only NAME] [--json PATH]

Each row has its own server with keys: the honest episodes have the trainer's, all attackers one
agent's. Honest episodes take a step every 0.1 s through the public client; the time of a reset or a
step is measured there. `cpu_after_s` is what the server still works after the attackers left and
the honest episodes ended. Each attacker is a process of a lower priority. Linux only (reads /proc).
"""

import logging
import os
from dataclasses import asdict
from typing import Annotated

import typer

from benchmarks.attacks.attackers import ATTACKS
from benchmarks.attacks.honest import measure
from benchmarks.measuring import DATA, DataDir, JsonPath, chosen
from shared.console import write_json


def main(
    data: DataDir = DATA,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each attack.")] = 10.0,
    only: Annotated[
        list[str] | None, typer.Option(help="Attack to run, 'all' or 'none'. Repeatable.")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Measure honest steps beside each attack, and beside all of them at once."""
    rows = {"none": [], **{name: [name] for name in ATTACKS}, "all": [*ATTACKS]}
    names = chosen(only, rows, "attack")
    logging.disable()  # the client warns of every retry
    results = []
    for name in names:
        results.append(asdict(measure(name, rows[name], data, seconds)))
        print(results[-1], flush=True)
    write_json(json_path, {"rows": results, "cpus": os.cpu_count()})


if __name__ == "__main__":
    typer.run(main)
