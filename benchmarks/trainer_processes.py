"""What do several trainer processes save on this machine, and what do they change?

    python -m benchmarks.trainer_processes [--steps 5] [--rounds 2] [--data DIR] [--out PATH]

The same short training with each of --counts processes, one after another and in --rounds rounds,
so that a busy hour slows all of them; the ratio is what to trust. The first step of a run warms up
and is left out of the seconds. Then the runs are compared: with themselves (the same number of
processes, the next round) and with those of the first count.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import psutil
import torch
import typer
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from shared.run_files import RunFiles
from trainer.run.console import number
from trainer.run.cost import known
from trainer.run.folder import open_run, read_json, read_lines, write_json
from trainer.runtime.cpu_budget import usable_cores

PARTS = ("generate_s", "env_wait_s", "rank_wait_s", "rollout_s", "update_s", "step_s", "cpu_s")
# what ends like this is no result
TIMED = ("_s", "step_time", "train_runtime", "per_second", "flos")
POLL_S = 2.0
PRESSURE = Path("/proc/pressure/cpu")


def timing(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Mean seconds a step after the first, by part, of metrics.jsonl; `first_s` is the first
    step's.

    `step_s` is rollout and update; generate, env_wait and rank_wait are parts of process 0's
    rollout; `cpu_s` is of all trainer processes, all threads.
    """
    steps = [row for row in rows if "success" in row]
    cpu = [0.0, *(row["cpu_s"] for row in steps)]  # it is a running sum
    found = [
        {
            **{name: row.get(name) or 0.0 for name in PARTS},
            "step_s": row["rollout_s"] + row["update_s"],
            "cpu_s": after - before,
        }
        for row, (before, after) in zip(steps, pairwise(cpu), strict=True)
    ]
    means = {name: statistics.fmean(one[name] for one in found[1:]) for name in PARTS}
    return {**means, "first_s": found[0]["step_s"]}


def same_lines(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Episodes that are equal in all that is recorded of them: part of the run -> '60/64', in the
    order played."""
    equal: dict[str, list[bool]] = {}
    for one, other in zip(ours, theirs, strict=True):
        name = (
            f"step {one['step']}" if one["phase"] == "train" else f"{one['phase']} ({one['mode']})"
        )
        equal.setdefault(name, []).append(one == other)
    return {name: f"{sum(found)}/{len(found)}" for name, found in equal.items()}


def metric_differences(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, float]]:
    """Metric -> step -> |a - b| / max(|a|, |b|), of every metric and step of metrics.jsonl that
    differs."""
    found: dict[str, dict[str, float]] = {}
    for one, other in zip(ours, theirs, strict=True):
        for name in sorted(one.keys() & other.keys()):
            a, b = one[name], other[name]
            if (
                a == b
                or name.endswith(TIMED)
                or not isinstance(a, int | float)
                or not isinstance(b, int | float)
            ):
                continue
            found.setdefault(name, {})[str(one["step"])] = abs(a - b) / max(abs(a), abs(b))
    return found


def compared(ours: RunFiles, theirs: RunFiles) -> dict[str, Any]:
    """What is equal in two finished runs of the same settings, and how far apart the rest is."""
    steps = [[row for row in read_lines(one.metrics) if "success" in row] for one in (ours, theirs)]
    weights, others = (
        load_file(one.path / "model" / "model.safetensors") for one in (ours, theirs)
    )
    apart = max(
        float((value.double() - others[name].double()).abs().max())
        for name, value in weights.items()
    )
    names = {
        name for row in steps[0] for name, value in row.items() if isinstance(value, int | float)
    }
    differ = metric_differences(*steps)
    return {
        "episodes": same_lines(*(list(read_lines(one.episodes)) for one in (ours, theirs))),
        "metrics_equal": sorted(name for name in names - differ.keys() if not name.endswith(TIMED)),
        "metrics_that_differ": differ,
        "weights_max_difference": apart,
    }


def memory_mb(process: psutil.Process) -> float:
    """Of a process and all below it, the server's too; a page that several share is shared out
    among them."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_full_info().pss
        except psutil.Error:  # it ended in between
            continue
    return total / 2**20


def pressed_s() -> float:
    """Seconds, since the machine began, in which something that could have run waited for a core;
    NaN where unknown."""
    try:
        return int(PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, LookupError, ValueError):
        return math.nan


def train(count: int, folder: Path, options: Sequence[str]) -> tuple[RunFiles, dict[str, Any]]:
    """Train in `count` processes, as a user does. The run, its seconds and its memory.

    `pressed` is the share of the time in which something waited for a core: on a quiet machine it
    is small.
    """
    command = [
        sys.executable,
        "-m",
        "trainer",
        "train",
        "--processes",
        str(count),
        "--out",
        str(folder),
        *options,
    ]
    began, pressed = time.monotonic(), pressed_s()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        peak = 0.0
        while True:
            try:
                output, _ = process.communicate(timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, memory_mb(psutil.Process(process.pid)))
    if process.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with exit code {process.returncode}:\n{output}"
        )
    run = open_run(folder / "latest")
    pressed = (pressed_s() - pressed) / (time.monotonic() - began)
    more = {
        "wall_s": read_json(run.summary)["wall_s"],
        "memory_mb": round(peak),
        "pressed": known(pressed, 2),
    }
    return run, {**timing(read_lines(run.metrics)), **more}


def report(console: Console, found: Mapping[str, Any]) -> None:
    seconds = (
        "step_s",
        "rollout_s",
        "generate_s",
        "rank_wait_s",
        "update_s",
        "cpu_s",
        "first_s",
        "wall_s",
    )
    names = (*seconds, "memory_mb", "pressed")
    table = Table(
        "processes", "round", *names, title=f"seconds a step, mean of {found['steps'] - 1} steps"
    )
    for one in found["runs"]:
        numbers = (number(one[name], ",.0f" if name == "memory_mb" else ".2f") for name in names)
        table.add_row(str(one["processes"]), str(one["round"]), *numbers)
    console.print(table)
    for count, parts in found["ratios"].items():
        shown = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
        console.print(
            f"{count} processes, times the speed of {found['runs'][0]['processes']}: {shown}"
        )
    for one in found["comparisons"]:
        console.print(f"\n{one['runs']}: weights at most {one['weights_max_difference']:.1e} apart")
        console.print(
            "equal episodes: "
            + ", ".join(f"{name} {value}" for name, value in one["episodes"].items())
        )
        for name, steps in one["metrics_that_differ"].items():
            console.print(
                f"  {name}: "
                + ", ".join(f"step {step} {value:.1e}" for step, value in steps.items())
            )
        console.print(f"  {len(one['metrics_equal'])} other metrics are equal")


def main(
    counts: Annotated[
        str, typer.Option(help="Numbers of processes; the others are compared with the first.")
    ] = "1,2",
    steps: Annotated[int, typer.Option(min=2, help="GRPO steps of a run.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each number.")] = 2,
    seed: Annotated[int, typer.Option(help="Of all runs.")] = 1,
    eval_limit: Annotated[int, typer.Option(min=1, help="Questions of each evaluation.")] = 32,
    data: Annotated[Path, typer.Option(help="Data directory.")] = Path("data"),
    set_: Annotated[list[str] | None, typer.Option("--set", help="As of 'trainer train'.")] = None,
    out: Annotated[Path, typer.Option(help="Where the JSON goes.")] = Path(
        "runs/trainer_processes.json"
    ),
) -> None:
    options = [
        "--seed",
        str(seed),
        "--steps",
        str(steps),
        "--eval-limit",
        str(eval_limit),
        "--eval-every",
        "0",
    ]
    options += ["--data", str(data), *(word for one in set_ or () for word in ("--set", one))]
    numbers = [int(count) for count in counts.split(",")]
    with tempfile.TemporaryDirectory(prefix="sqlenv-processes-") as scratch:
        runs: dict[tuple[int, int], tuple[RunFiles, dict[str, Any]]] = {
            (count, number): train(count, Path(scratch) / f"{number}-{count}", options)
            for number in range(1, rounds + 1)
            for count in numbers
        }
        pairs = [
            ((count, 1), (count, number)) for count in numbers for number in range(2, rounds + 1)
        ]
        pairs += [((numbers[0], 1), (count, 1)) for count in numbers[1:]]
        comparisons = [
            {
                "runs": f"{one[0]} processes, round {one[1]} / {other[0]} processes, round {other[1]}",
                **compared(runs[one][0], runs[other][0]),
            }
            for one, other in pairs
        ]
    seconds = {
        count: {
            name: statistics.fmean(runs[count, number][1][name] for number in range(1, rounds + 1))
            for name in ("step_s", "rollout_s", "update_s", "wall_s")
        }
        for count in numbers
    }
    found = {
        "command": f"python -m benchmarks.trainer_processes {' '.join(sys.argv[1:])}".strip(),
        "cores": usable_cores(),
        "torch": torch.__version__,
        "steps": steps,
        "runs": [
            {"processes": count, "round": number, **timed}
            for (count, number), (_, timed) in sorted(runs.items())
        ],
        "ratios": {
            str(count): {
                name: round(seconds[numbers[0]][name] / value, 3)
                for name, value in seconds[count].items()
            }
            for count in numbers[1:]
        },
        "comparisons": comparisons,
    }
    report(Console(width=160), json.loads(json.dumps(found)))
    write_json(out, found)


if __name__ == "__main__":
    typer.run(main)
