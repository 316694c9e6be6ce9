"""Measure what several trainer processes save on this machine, and what they change.

    python -m benchmarks.trainer_processes [--steps 5] [--rounds 2] [--data DIR] [--out PATH]

Runs the same short training with each of --counts processes, alternating for --rounds rounds, so
that other load on the machine affects all of them; only the ratio is reliable. The seconds leave
out the first step of a run, which warms up. The runs are then compared: with the next round of the
same number of processes, and with the first of --counts.
"""

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import load_file

from benchmarks.measuring import DATA, DataDir, memory_mib, print_table, train
from shared.run_files import RunFiles
from shared.seeds import MAX_SEED
from trainer.run.console import number
from trainer.run.cost import known
from trainer.run.folder import Run, read_json, read_lines, write_json
from trainer.runtime.cpu_budget import usable_cores

SECONDS = ("generate_s", "env_wait_s", "rank_wait_s", "rollout_s", "update_s", "step_s", "cpu_s")
RATIOS = ("step_s", "rollout_s", "update_s", "wall_s")
COLUMNS = (
    "step_s", "rollout_s", "generate_s", "rank_wait_s", "update_s", "cpu_s", "first_s", "wall_s",
    "memory_mb", "pressed",
)  # fmt: skip
# metrics with these endings are times, which always differ
TIMED = ("_s", "step_time", "train_runtime", "per_second", "flos")
PRESSURE = Path("/proc/pressure/cpu")
Lines = Sequence[Mapping[str, Any]]


def timing(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean seconds per step after the first, from the rows of metrics.jsonl.

    `step_s` is rollout and update; generate, env_wait and rank_wait are shares of process 0's
    rollout; `cpu_s` covers all trainer processes; `first_s` is the first step.
    """
    steps = [row for row in rows if "success" in row]
    cpu = [0.0, *(row["cpu_s"] for row in steps)]  # a running sum
    seconds = [
        {
            **{name: row.get(name) or 0.0 for name in SECONDS},
            "step_s": row["rollout_s"] + row["update_s"],
            "cpu_s": after - before,
        }
        for row, (before, after) in zip(steps, pairwise(cpu), strict=True)
    ]
    means = {name: statistics.fmean(step[name] for step in seconds[1:]) for name in SECONDS}
    return {**means, "first_s": seconds[0]["step_s"]}


def same_episodes(a: Lines, b: Lines) -> dict[str, str]:
    """Return how many episodes are equal in everything recorded, such as {"step 1": "60/64"}."""
    equal: dict[str, list[bool]] = {}
    for one, other in zip(a, b, strict=True):
        training = one["phase"] == "train"
        name = f"step {one['step']}" if training else f"{one['phase']} ({one['mode']})"
        equal.setdefault(name, []).append(one == other)
    return {name: f"{sum(flags)}/{len(flags)}" for name, flags in equal.items()}


def metric_differences(a: Lines, b: Lines) -> dict[str, dict[str, float]]:
    """Return metric -> step -> |a - b| / max(|a|, |b|), without the steps in which it is equal."""
    differences: dict[str, dict[str, float]] = {}
    for one, other in zip(a, b, strict=True):
        for name in sorted(one.keys() & other.keys()):
            x, y = one[name], other[name]
            numbers = isinstance(x, int | float) and isinstance(y, int | float)
            if numbers and not name.endswith(TIMED):
                steps = differences.setdefault(name, {})
                if x != y:
                    steps[str(one["step"])] = abs(x - y) / max(abs(x), abs(y))
    return differences


def compared(a: RunFiles, b: RunFiles) -> dict[str, Any]:
    """Return what is equal in two finished runs of the same settings, and how the rest differs."""
    steps = [[row for row in read_lines(run.metrics) if "success" in row] for run in (a, b)]
    weights, others = (load_file(run.path / "model" / "model.safetensors") for run in (a, b))
    differences = metric_differences(*steps)
    return {
        "episodes": same_episodes(*(list(read_lines(run.episodes)) for run in (a, b))),
        "metrics_equal": sorted(name for name, by_step in differences.items() if not by_step),
        "metrics_that_differ": {name: by_step for name, by_step in differences.items() if by_step},
        "weights_max_difference": max(
            float((value.double() - others[name].double()).abs().max())
            for name, value in weights.items()
        ),
    }


def pressed_s() -> float:
    """Return the seconds since boot in which some task waited for a CPU core; NaN where unknown."""
    try:
        return int(PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, LookupError, ValueError):
        return math.nan


def timed_train(count: int, out: Path, options: Sequence[str]) -> tuple[Run, dict[str, Any]]:
    """Train with `count` processes; return the run with its seconds and memory, server included.

    `pressed` is the share of the time in which some task waited for a core: small on an idle
    machine.
    """
    start, pressed, memory = time.monotonic(), pressed_s(), [0.0]
    options = ["--processes", str(count), *options]
    run = train(out, options, lambda pid: memory.append(memory_mib(pid)))
    return run, {
        **timing(read_lines(run.metrics)),
        "wall_s": read_json(run.summary)["wall_s"],
        "memory_mb": round(max(memory)),
        "pressed": known((pressed_s() - pressed) / (time.monotonic() - start), 2),
    }


def report(result: Mapping[str, Any]) -> None:
    """Print the seconds of all runs, the ratios and the comparisons."""

    def listed(values: Mapping[str, Any], form: str = "") -> str:
        return ", ".join(f"{name} {value:{form}}" for name, value in values.items())

    forms = dict.fromkeys(COLUMNS, ".2f") | {"memory_mb": ",.0f"}
    rows = []
    for run in result["runs"]:
        cells = (number(run[name], form) for name, form in forms.items())
        rows.append((str(run["processes"]), str(run["round"]), *cells))
    title = f"seconds per step, mean of {result['steps'] - 1} steps"
    print_table(title, ("processes", "round", *COLUMNS), rows)
    for count, ratios in result["ratios"].items():
        baseline = result["runs"][0]["processes"]
        print(f"speed of {count} / {baseline} processes: {listed(ratios, '.2f')}")
    for pair in result["comparisons"]:
        print(f"\n{pair['runs']}: weights differ by {pair['weights_max_difference']:.1e}")
        print(f"equal episodes: {listed(pair['episodes'])}")
        for name, steps in pair["metrics_that_differ"].items():
            by_step = {f"step {step}": difference for step, difference in steps.items()}
            print(f"  {name}: {listed(by_step, '.1e')}")
        print(f"  {len(pair['metrics_equal'])} other metrics are equal")


def main(
    counts: Annotated[
        str, typer.Option(help="Numbers of processes, comma-separated; the first is the baseline.")
    ] = "1,2",
    steps: Annotated[int, typer.Option(min=2, help="GRPO steps per run.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Runs per number of processes.")] = 2,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed of all runs.")] = 1,
    eval_limit: Annotated[int, typer.Option(min=1, help="Questions per evaluation.")] = 32,
    data: DataDir = DATA,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Passed to 'trainer train'.")
    ] = None,
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = Path(
        "runs/trainer_processes.json"
    ),
) -> None:
    """Train with each number of processes and compare time, memory and results."""
    options = ["--seed", str(seed), "--steps", str(steps), "--eval-limit", str(eval_limit)]
    options += ["--eval-every", "0", "--data", str(data)]
    options += [word for setting in set_ or () for word in ("--set", setting)]
    numbers, turns = [int(count) for count in counts.split(",")], range(1, rounds + 1)
    first = numbers[0]
    with tempfile.TemporaryDirectory(prefix="sqlenv-processes-") as scratch:
        runs = {
            (count, turn): timed_train(count, Path(scratch) / f"{turn}-{count}", options)
            for turn in turns
            for count in numbers
        }
        pairs = [((count, 1), (count, turn)) for count in numbers for turn in turns[1:]]
        pairs += [((first, 1), (count, 1)) for count in numbers[1:]]
        comparisons = []
        for pair in pairs:
            name = " / ".join(f"{count} processes, round {turn}" for count, turn in pair)
            comparisons.append({"runs": name, **compared(*(runs[key][0] for key in pair))})

    def mean(count: int, name: str) -> float:
        return statistics.fmean(runs[count, turn][1][name] for turn in turns)

    result = {
        "command": f"python -m benchmarks.trainer_processes {' '.join(sys.argv[1:])}".strip(),
        "cores": usable_cores(),
        "torch": torch.__version__,
        "steps": steps,
        "runs": [
            {"processes": count, "round": turn, **figures}
            for (count, turn), (_, figures) in sorted(runs.items())
        ],
        "ratios": {
            str(count): {name: round(mean(first, name) / mean(count, name), 3) for name in RATIOS}
            for count in numbers[1:]
        },
        "comparisons": comparisons,
    }
    report(result)
    write_json(out, result)


if __name__ == "__main__":
    typer.run(main)
