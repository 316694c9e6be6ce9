"""The pictures of both commands, drawn with matplotlib's file backend; no display is needed."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.learning.bench import Modes
from shared.run_stats import MODES
from trainer.run.plots import GREEDY, SAMPLED, Row, series

COLOURS = {"greedy": GREEDY, "sampled": SAMPLED}
BAR = 0.38  # height of one bar; a policy's pair is one unit high


def bars(policies: Sequence[tuple[str, Modes]], title: str, part: str = "unseen") -> bytes:
    """A PNG: for every (label, modes) a horizontal bar a mode with its 95 % interval, the first at
    the top."""
    figure = Figure(figsize=(9, 0.62 * len(policies) + 1.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for mode, offset in zip(MODES, (-BAR / 2, BAR / 2), strict=True):
        label: str | None = mode
        for place, (_, modes) in enumerate(policies):
            rate = modes.get(mode, {}).get(part)
            if not rate or rate["rate"] is None:
                continue
            value, (low, high) = 100 * rate["rate"], (100 * end for end in rate["ci95"])
            axes.barh(
                place + offset,
                value,
                BAR,
                xerr=[[max(0.0, value - low)], [max(0.0, high - value)]],
                color=COLOURS[mode],
                alpha=0.85,
                capsize=3,
                label=label,
            )
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
    return _png(figure)


def mean_curve(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], list[float]]:
    """The mean of (steps, values) curves, at the steps that all of them have."""
    points = [dict(zip(steps, values, strict=True)) for steps, values in curves if steps]
    common = sorted(set.intersection(*(set(one) for one in points))) if points else []
    return common, [sum(one[step] for one in points) / len(points) for step in common]


def seed_curves(runs: Sequence[tuple[str, Sequence[Row], Mapping[str, Any]]]) -> bytes:
    """A PNG of a panel a mode over the steps: the eval curve of every run, thin, their mean, thick,
    and before and after on the whole set with 95 % intervals. `runs`: (label, rows of
    metrics.jsonl, summary.json)."""
    figure = Figure(figsize=(11, 4.6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, mode in zip(figure.subplots(1, len(MODES), sharey=True), MODES, strict=True):
        _seed_panel(axes, mode, runs)
    return _png(figure)


def _seed_panel(
    axes: Axes, mode: str, runs: Sequence[tuple[str, Sequence[Row], Mapping[str, Any]]]
) -> None:
    curves = [series(rows, f"eval_{mode}_success") for _, rows, _ in runs]
    last = max((int(summary["train_steps"]) for _, _, summary in runs), default=1)
    for index, ((label, rows, summary), (steps, values)) in enumerate(
        zip(runs, curves, strict=True)
    ):
        colour, aside = f"C{index}", 0.008 * last * (index - (len(runs) - 1) / 2)
        few = next((row["eval_n"] for row in rows if "eval_n" in row), "?")
        axes.plot(
            steps,
            [100 * value for value in values],
            color=colour,
            linewidth=1,
            label=f"{label} (n={few})",
        )
        for phase, step in (("before", 0), ("after", int(summary["train_steps"]))):
            rate = summary["evaluations"].get(phase, {}).get(mode, {}).get("overall")
            if rate and rate["rate"] is not None:
                value, (low, high) = 100 * rate["rate"], (100 * end for end in rate["ci95"])
                error = [[max(0.0, value - low)], [max(0.0, high - value)]]
                axes.errorbar(
                    [step + aside],
                    [value],
                    error,
                    color=colour,
                    marker="D",
                    markersize=5,
                    capsize=3,
                )
    steps, values = mean_curve(curves)
    if steps and len(runs) > 1:
        axes.plot(
            steps,
            [100 * value for value in values],
            color="black",
            linewidth=2.8,
            label="mean of the curves",
        )
    axes.set_title(f"{mode}; diamonds: the whole eval set, 95 % intervals")
    axes.set_xlabel("GRPO step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("success, %")
    axes.set_ylim(-3, 103)
    axes.grid(alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize=8)


def _png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
