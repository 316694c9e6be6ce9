"""Comparison of several runs that differ in their seed: seeds.md and seeds.json."""

from collections.abc import Sequence
from typing import Any, TypedDict

from benchmarks.learning.bench import Finished
from benchmarks.learning.report import NO_NUMBER, markdown_table, percent, wrapped
from shared.run_files import Cost
from shared.run_stats import MODES, RateSummary
from trainer.errors import RunError
from trainer.report.tables import change
from trainer.run.console import number

COLUMNS = [(part, mode) for part in ("unseen", "seen") for mode in MODES]
SAME = ("data", "server", "model")  # digests that comparable runs share


class SeedLine(TypedDict):
    """The figures of one run, as seeds.json has them."""

    run: str
    seed: int
    steps: int
    training_s: float
    wall_s: float
    # part -> mode -> before, after
    success: dict[str, dict[str, dict[str, RateSummary | None]]]
    seconds_to: dict[str, dict[str, float | None]] | None
    cost: Cost | None
    digests: dict[str, str]


def check_comparable(runs: Sequence[Finished]) -> None:
    """Raise `RunError` if runs started from different models or data, or repeat a seed."""
    seeds = [run.config.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        names = ", ".join(map(str, seeds))
        raise RunError(f"the runs have seeds {names}: name runs of different seeds")
    first = runs[0]
    for run in runs[1:]:
        differs = [name for name in SAME if run.digests.get(name) != first.digests.get(name)]
        if differs:
            raise RunError(f"{run.run.id} and {first.run.id} differ in their {differs[0]}")
        if run.steps != first.steps:
            raise RunError(f"{run.run.id} has {run.steps} steps, {first.run.id} {first.steps}")


def seed_line(run: Finished) -> SeedLine:
    """Return the figures of one run."""
    cost = run.summary.get("cost")
    success: dict[str, dict[str, dict[str, RateSummary | None]]] = {}
    for part, mode in COLUMNS:
        rates = success.setdefault(part, {}).setdefault(mode, {})
        for phase in ("before", "after"):
            modes: dict[str, Any] = {**run.summary["evaluations"].get(phase, {})}
            rates[phase] = modes.get(mode, {}).get(part)
    return {
        "run": run.run.id,
        "seed": run.config.seed,
        "steps": run.steps,
        "training_s": round(run.training_s, 1),
        "wall_s": run.summary["wall_s"],
        "success": success,
        "seconds_to": cost["seconds_to"] if cost else None,
        "cost": cost,
        "digests": run.digests,
    }


def success_table(lines: Sequence[SeedLine]) -> str:
    rows = []
    for line in lines:
        for part, mode in COLUMNS:
            before, after = (line["success"][part][mode][phase] for phase in ("before", "after"))
            n = str(after["n"]) if after else NO_NUMBER
            gain = change(before, after) or NO_NUMBER
            rows.append([str(line["seed"]), part, mode, n, percent(before), percent(after), gain])
    return markdown_table(["seed", "databases", "mode", "n", "before", "after", "gain"], rows)


def cost_table(lines: Sequence[SeedLine]) -> str:
    """Return seconds of training to each success rate, of training and of the run, and CPU."""
    reached = [line["seconds_to"] or {} for line in lines]
    rates = sorted({rate for modes in reached for mode in modes.values() for rate in mode})
    columns = [(rate, mode) for rate in rates for mode in MODES]
    rows = []
    for line, modes in zip(lines, reached, strict=True):
        cost = line["cost"]
        cpu = [cost["cpu_s_per_episode"], cost["server_cpu_s_per_episode"]] if cost else [None] * 2
        rows.append(
            [
                str(line["seed"]),
                *(number(modes.get(mode, {}).get(rate), ",.0f") for rate, mode in columns),
                f"{line['training_s']:,.0f}",
                f"{line['wall_s']:,.0f}",
                " + ".join(number(value, ".3f") for value in cpu),
            ]
        )
    targets = (f"s to {100 * float(rate):.0f} %, {mode}" for rate, mode in columns)
    headings = ["seed", *targets, "training s", "whole run s", "CPU s per episode"]
    return markdown_table(headings, rows)


def mean_gain(lines: Sequence[SeedLine], part: str, mode: str) -> tuple[float, float, float] | None:
    """Return the lowest, mean and highest gain in points; None if a run lacks a measurement."""
    gains = []
    for line in lines:
        before, after = (line["success"][part][mode][phase] for phase in ("before", "after"))
        if not before or not after or before["rate"] is None or after["rate"] is None:
            return None
        gains.append(100 * (after["rate"] - before["rate"]))
    return min(gains), sum(gains) / len(gains), max(gains)


def page(lines: Sequence[SeedLine], command: str) -> str:
    """Return seeds.md."""
    gains = [
        f"- {part}, {mode}: {gain[1]:+.1f} points in the mean "
        f"(lowest {gain[0]:+.1f}, highest {gain[2]:+.1f})\n"
        for part, mode in COLUMNS
        if (gain := mean_gain(lines, part, mode)) is not None
    ]
    runs = ", ".join(f"seed {line['seed']}: {line['run']}" for line in lines)
    head = wrapped(
        f"Runs of `make train SEED=...`, {lines[0]['steps']} steps each, from the same model on "
        f"the same questions ({runs}). Success in % with 95 % Wilson intervals."
    )
    costs = wrapped(
        "Seconds of training, without evaluations, to the first point of the eval curve at a "
        "success rate; CPU-seconds per episode are of the trainer + of the server."
    )
    return (
        f"# The same training with other seeds\n\n{head}\n\n    {command}\n\n"
        f"{success_table(lines)}\n{''.join(gains)}\n"
        f"![Eval curves of all seeds](seeds.png)\n\n{costs}\n\n{cost_table(lines)}"
    )
