"""What a step costs with SQLEnv, and with OpenEnv and TRL, in one harness.

    python -m benchmarks.peers [--peer NAME] [--json PATH]

Every peer plays the same episodes at once: a DESCRIBE, a SAMPLE, look-ups and an ANSWER, of
questions of the shipped data, with rewards, and with SQL in one jailed worker. Actions come from a
script, so no model's cost is in any figure. Resets count. Peers that need packages which SQLEnv
does not have get an environment of their own, made from `requirements/` at the first run. Waves of
all peers alternate, and ratios are between waves of the same number, so that other load on the
machine affects all alike. Linux only (reads /proc).
"""

import os
import platform
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, make_scripts
from benchmarks.peers.environments import CACHE
from benchmarks.peers.player import Workload
from benchmarks.peers.step_cost import PEERS, Report, measure
from env_server.questions import QuestionBank
from shared.console import table_console, write_json
from trainer.run.console import table

HEADINGS = ("played by", "server", "client", "CPU us/step", "CPU x", "steps/s", "time x")


def row(peer: Report) -> tuple[str, ...]:
    if "not_measured" in peer:
        return (peer["title"], *["-"] * (len(HEADINGS) - 2), "not measured")
    costs = [f"{peer[key]:,.0f}" for key in ("server_cpu_us", "client_cpu_us", "cpu_us")]
    cpu, time = (f"{peer[key]['median']:.1f}" for key in ("cpu_ratio", "time_ratio"))
    return (peer["title"], *costs, cpu, f"{peer['steps_per_s']:,.0f}", time)


def main(
    peer: Annotated[list[str] | None, typer.Option(help="Peer to measure; repeatable.")] = None,
    data: DataDir = DATA,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes played at once.")] = 64,
    steps: Annotated[int, typer.Option(min=3, max=100, help="Steps per episode.")] = 10,
    waves: Annotated[int, typer.Option(min=1, help="Waves per peer.")] = 10,
    cache: Annotated[Path, typer.Option(help="Folder of the peers' environments.")] = CACHE,
    json_path: JsonPath = None,
) -> None:
    """Compare the cost of a step with that of other frameworks."""
    names = chosen(peer, [one.name for one in PEERS], "peer")
    bases = {one.base for one in PEERS if one.name in names}
    wanted = [one for one in PEERS if one.name in {*names, *bases}]
    workload = Workload(data, make_scripts(QuestionBank.load(data), episodes, steps))
    found = measure(wanted, workload, waves, cache)
    report: Report = {"episodes": episodes, "steps_per_episode": steps, "waves": waves}
    report |= {"cpus": os.cpu_count(), "python": platform.python_version(), "peers": found}
    title = f"{episodes} episodes of {steps} steps at once, {waves} waves: CPU time per step"
    table_console().print(table(title, HEADINGS, map(row, found)))
    for one in found:
        if "not_measured" in one:
            print(f"not measured: {one['title']}: {one['not_measured']}")
    write_json(json_path, report)


if __name__ == "__main__":
    typer.run(main)
