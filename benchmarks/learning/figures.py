"""The figures of both commands, drawn without a display."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.learning.bench import Modes
from shared.run_files import RunSummary
from shared.run_stats import MODES
from trainer.run.charts import COLOURS, Chart, Point, Series, percent, png
from trainer.run.plots import COLOURS as MODE_COLOURS
from trainer.run.plots import Row, points, rate_of

BAR = 0.38  # height of a bar; the two of a policy take one unit
RUN_COLOURS = ("blue", "orange", "green", "ochre", "violet")
RunCurves = tuple[str, Sequence[Row], RunSummary]  # label, rows of metrics.jsonl, summary.json


def bars(policies: Sequence[tuple[str, Modes]], title: str, part: str = "unseen") -> bytes:
    """Return a PNG with a bar and its 95 % interval per policy and mode, the first at the top."""
    figure = Figure(figsize=(9, 0.62 * len(policies) + 1.4), dpi=120, layout="constrained")
    axes = figure.subplots()
    for mode, offset in zip(MODES, (-BAR / 2, BAR / 2), strict=True):
        label: str | None = mode
        for place, (_, modes) in enumerate(policies):
            rate = modes.get(mode, {}).get(part)
            if rate and rate["rate"] is not None:
                value, (low, high) = 100 * rate["rate"], (100 * end for end in rate["ci95"])
                error = [[max(0.0, value - low)], [max(0.0, high - value)]]
                style: dict[str, Any] = {"color": COLOURS[MODE_COLOURS[mode]], "alpha": 0.85}
                axes.barh(place + offset, value, BAR, xerr=error, capsize=3, label=label, **style)
                axes.text(high + 1, place + offset, f"{value:.1f}", va="center", fontsize=8)
                label = None
    axes.set_yticks(range(len(policies)), [label for label, _ in policies])
    axes.invert_yaxis()
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"success on {part} databases, %, with 95 % intervals")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize=8)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def mean_curve(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the mean of several curves, at the steps that all of them have."""
    values = [{point.x: point.y for point in curve} for curve in curves if curve]
    common = sorted(set.intersection(*map(set, values))) if values else []
    return [Point(step, sum(one[step] for one in values) / len(values)) for step in common]


def seed_curves(runs: Sequence[RunCurves]) -> bytes:
    """Return a PNG with one chart per mode: the eval curve of every run, and their mean.

    Diamonds are before and after on the whole eval set, with 95 % intervals.
    """
    title = "Success by seed; diamonds: the whole eval set, 95 % intervals"
    return png([_seed_chart(mode, runs) for mode in MODES], title, dpi=120)


def _seed_chart(mode: str, runs: Sequence[RunCurves]) -> Chart:
    lines, curves = [], []
    last = max((summary["train_steps"] for _, _, summary in runs), default=1)
    for index, (label, rows, summary) in enumerate(runs):
        colour = RUN_COLOURS[index % len(RUN_COLOURS)]
        aside = 0.008 * last * (index - (len(runs) - 1) / 2)  # so that no diamond hides another
        n = next((row["eval_n"] for row in rows if "eval_n" in row), "?")
        curves.append(points(rows, f"eval_{mode}_success"))
        lines.append(Series(f"{label} (n={n})", curves[-1], colour, "faint"))
        evaluations: Mapping[str, Any] = summary["evaluations"]
        marks = [
            Point(step + aside, rate["rate"], *rate["ci95"])
            for phase, step in (("before", 0), ("after", summary["train_steps"]))
            if (rate := rate_of(evaluations, phase, mode)) is not None
        ]
        lines.append(Series("", marks, colour, "diamonds"))
    if len(runs) > 1:
        lines.append(Series("mean of the curves", mean_curve(curves), "soft"))
    return Chart(mode, mode, lines, bounds=(0.0, 1.0), form=percent)
