"""Comparison of several runs that differ in their seed: seeds.md, seeds.json and seeds.png."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning.bench import Finished
from benchmarks.learning.report import COLUMNS, NO_NUMBER, markdown_table, percent, wrapped
from shared.console import percent as percent_axis
from shared.run_stats import MODES
from trainer.errors import RunError
from trainer.evaluation.inputs import FOR_MEMORY, shared_settings
from trainer.report.tables import change
from trainer.run.charts import Chart, Point, Series, png
from trainer.run.console import number
from trainer.run.folder import metrics_rows
from trainer.run.plots import points, rate_of

SAME = ("data", "server", "model")  # digests that comparable runs share
Rate = Mapping[str, Any] | None  # of `trainer.run.plots.rate_of`
RUN_COLOURS = ("blue", "orange", "green", "ochre", "violet")


def check_comparable(runs: Sequence[Finished]) -> None:
    """Raise `RunError` if runs differ in their model, data or settings, or repeat a seed."""
    seeds = [run.config.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        names = ", ".join(map(str, seeds))
        raise RunError(f"the runs have seeds {names}: name runs of different seeds")
    first = runs[0]
    for run in runs[1:]:
        differs = [name for name in SAME if run.digests.get(name) != first.digests.get(name)]
        if differs:
            raise RunError(f"{run.run.id} and {first.run.id} differ in their {differs[0]}")
        now, then = settings_of(run), settings_of(first)
        if changed := [name for name, value in now.items() if then[name] != value]:
            name = changed[0]
            raise RunError(
                f"{run.run.id} has {name}={now[name]}, {first.run.id} {name}={then[name]}: "
                "name runs with the same settings"
            )


def settings_of(run: Finished) -> dict[str, Any]:
    """Return the settings that comparable runs share."""
    settings = shared_settings(run.config, run.options, None)
    own = {"seed", "preset", *FOR_MEMORY}  # a preset's name decides nothing
    return {name: value for name, value in settings.items() if name not in own}


def rates(run: Finished, part: str, mode: str) -> list[Rate]:
    """Return a run's success before and after."""
    evaluations: Mapping[str, Any] = run.summary["evaluations"]
    return [rate_of(evaluations, phase, mode, part) for phase in ("before", "after")]


def as_json(run: Finished) -> dict[str, Any]:
    """Return the figures of one run for seeds.json."""
    success: dict[str, dict[str, dict[str, Rate]]] = {}
    for part, mode in COLUMNS:
        before, after = rates(run, part, mode)
        success.setdefault(part, {})[mode] = {"before": before, "after": after}
    return {
        "run": run.run.id,
        "seed": run.config.seed,
        "steps": run.steps,
        "processes": run.summary["processes"],
        "training_s": round(run.training_s, 1),
        "wall_s": run.summary["wall_s"],
        "success": success,
        "cost": run.cost,
        "digests": run.digests,
    }


def success_table(runs: Sequence[Finished]) -> str:
    rows = []
    for run in runs:
        for part, mode in COLUMNS:
            before, after = rates(run, part, mode)
            n = str(after["n"]) if after else NO_NUMBER
            cells = (n, percent(before), percent(after), change(before, after) or NO_NUMBER)
            rows.append([str(run.config.seed), part, mode, *cells])
    return markdown_table(["seed", "databases", "mode", "n", "before", "after", "gain"], rows)


def cost_table(runs: Sequence[Finished]) -> str:
    """Return seconds of training to each success rate, of training and of the run, and CPU."""
    reached = {rate for run in runs for modes in run.cost["seconds_to"].values() for rate in modes}
    columns = [(rate, mode) for rate in sorted(reached) for mode in MODES]
    rows = []
    for run in runs:
        seconds = (number(run.cost["seconds_to"][mode].get(rate), ",.0f") for rate, mode in columns)
        cpu = (run.cost["cpu_s_per_episode"], run.cost["server_cpu_s_per_episode"])
        times = (f"{run.training_s:,.0f}", f"{run.summary['wall_s']:,.0f}")
        cpu_text = " + ".join(number(value, ".3f") for value in cpu)
        start = (str(run.config.seed), str(run.summary["processes"]))
        rows.append([*start, *seconds, *times, cpu_text])
    targets = (f"s to {100 * float(rate):.0f} %, {mode}" for rate, mode in columns)
    headings = ["seed", "processes", *targets, "training s", "whole run s", "CPU s per episode"]
    return markdown_table(headings, rows)


def mean_gain(runs: Sequence[Finished], part: str, mode: str) -> tuple[float, float, float] | None:
    """Return the lowest, mean and highest gain in points; None if a run lacks a measurement."""
    gains = []
    for run in runs:
        before, after = rates(run, part, mode)
        if not before or not after:
            return None
        gains.append(100 * (after["rate"] - before["rate"]))
    return min(gains), sum(gains) / len(gains), max(gains)


def page(runs: Sequence[Finished], command: str) -> str:
    """Return seeds.md."""
    gains = [
        f"- {part}, {mode}: {gain[1]:+.1f} points in the mean "
        f"(lowest {gain[0]:+.1f}, highest {gain[2]:+.1f})\n"
        for part, mode in COLUMNS
        if (gain := mean_gain(runs, part, mode)) is not None
    ]
    names = ", ".join(f"seed {run.config.seed}: {run.run.id}" for run in runs)
    head = wrapped(
        f"Runs of `make train SEED=...`, {runs[0].steps} steps each, from the same model on "
        f"the same questions ({names}). Success in % with 95 % Wilson intervals."
    )
    costs = wrapped(
        "Seconds of training, without evaluations, to the first point of the eval curve at a "
        "success rate; CPU-seconds per episode are of the trainer + of the server. The "
        "seconds of runs with different numbers of processes, or that ran side by side, do not "
        "compare."
    )
    return (
        f"# The same training with other seeds\n\n{head}\n\n    {command}\n\n"
        f"{success_table(runs)}\n{''.join(gains)}\n"
        f"![Eval curves of all seeds](seeds.png)\n\n{costs}\n\n{cost_table(runs)}"
    )


def mean_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the mean of several curves, at the steps that all of them have."""
    values = [{point.x: point.y for point in curve} for curve in curves if curve]
    common = sorted(set.intersection(*map(set, values))) if values else []
    return [Point(step, sum(one[step] for one in values) / len(values)) for step in common]


def seed_curves(runs: Sequence[Finished]) -> bytes:
    """Return a PNG with one chart per mode: the eval curve of every run, and their mean.

    Diamonds are before and after on the whole eval set, with 95 % intervals.
    """
    title = "Success by seed; diamonds: the whole eval set, 95 % intervals"
    return png([_seed_chart(mode, runs) for mode in MODES], title, dpi=120)


def _seed_chart(mode: str, runs: Sequence[Finished]) -> Chart:
    lines, curves = [], []
    last = max((run.steps for run in runs), default=1)
    for index, run in enumerate(runs):
        rows = list(metrics_rows(run.run.metrics))
        colour = RUN_COLOURS[index % len(RUN_COLOURS)]
        aside = 0.008 * last * (index - (len(runs) - 1) / 2)  # so that no diamond hides another
        n = next((row["eval_n"] for row in rows if "eval_n" in row), "?")
        curves.append(points(rows, f"eval_{mode}_success"))
        lines.append(Series(f"seed {run.config.seed} (n={n})", curves[-1], colour, "faint"))
        marks = [
            Point(step + aside, rate["rate"], *rate["ci95"])
            for step, rate in zip((0, run.steps), rates(run, "overall", mode), strict=True)
            if rate is not None
        ]
        lines.append(Series("", marks, colour, "diamonds"))
    if len(runs) > 1:
        lines.append(Series("mean of the curves", mean_curve(curves), "soft"))
    return Chart(mode, mode, lines, bounds=(0.0, 1.0), form=percent_axis)
