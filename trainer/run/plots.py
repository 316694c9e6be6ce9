"""The learning curve as a PNG, drawn from rows of metrics.jsonl without a display."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shared.run_files import TimedMeasurement

TRAIN, GREEDY, SAMPLED, RANDOM = "#1f77b4", "#d62728", "#2ca02c", "#7f7f7f"
COLOURS = {"greedy": GREEDY, "sampled": SAMPLED}
SMOOTHING_STEPS = 9  # window of the running mean

Row = Mapping[str, Any]
Measured = Mapping[str, TimedMeasurement]  # by mode, as in summary.json


def series(rows: Sequence[Row], key: str) -> tuple[list[float], list[float]]:
    """Return the steps and finite values of `key`; the last row of a step wins."""
    points = {
        float(row["step"]): float(row[key])
        for row in rows
        if isinstance(row.get(key), (int, float)) and math.isfinite(row[key]) and "step" in row
    }
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def running_mean(values: Sequence[float], window: int = SMOOTHING_STEPS) -> list[float]:
    """Return the mean of the `window` values around each; of fewer at both ends."""
    half = window // 2
    means = []
    for index in range(len(values)):
        near = values[max(0, index - half) : index + half + 1]
        means.append(sum(near) / len(near))
    return means


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure) -> bytes:
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()


def _training_curve(axes: Axes, rows: Sequence[Row], key: str) -> None:
    steps, values = series(rows, key)
    if steps:
        axes.plot(steps, values, color=TRAIN, alpha=0.3, linewidth=1, marker=".", markersize=3)
        label = "train episodes, sampled (running mean)"
        axes.plot(steps, running_mean(values), color=TRAIN, linewidth=2, label=label)


def _eval_curves(axes: Axes, rows: Sequence[Row], value: str) -> None:
    """Draw the eval curve of each mode; `value` is success or reward."""
    n = next((row["eval_n"] for row in reversed(rows) if "eval_n" in row), "?")
    for mode, colour in COLOURS.items():
        steps, values = series(rows, f"eval_{mode}_{value}")
        if steps:
            style: dict[str, Any] = {
                "linewidth": 1.2,
                "marker": "o",
                "markersize": 4,
                "linestyle": "--",
            }
            axes.plot(steps, values, color=colour, label=f"eval subset (n={n}), {mode}", **style)


def _whole_evals(axes: Axes, points: Sequence[tuple[float, Measured]], last: float) -> None:
    """Draw a diamond with its interval for each (step, evaluation of the whole set)."""
    shift = 0.005 * max(1.0, last)  # so that the modes do not hide each other
    for (mode, colour), offset in zip(COLOURS.items(), (-shift, shift), strict=True):
        label: str | None = f"whole eval set, {mode}"
        for step, modes in points:
            rate = modes[mode]["overall"] if mode in modes else None
            if rate is not None and rate["rate"] is not None:
                value, (low, high), at = rate["rate"], rate["ci95"], [step + offset]
                style: dict[str, Any] = {"capsize": 4, "fmt": "none", "zorder": 4}
                error = [[value - low], [high - value]]
                axes.errorbar(at, [value], error, color=colour, **style)
                with_n = label and f"{label} (n={rate['n']}, 95 % interval)"
                _diamond(axes, step + offset, value, colour, with_n)
                label = None


def _whole_rewards(axes: Axes, points: Sequence[tuple[float, Measured]]) -> None:
    for mode, colour in COLOURS.items():
        label: str | None = f"whole eval set, {mode}"
        for step, modes in points:
            reward = modes[mode].get("mean_reward") if mode in modes else None
            if reward is not None:
                _diamond(axes, step, reward, colour, label)
                label = None


def _diamond(axes: Axes, x: float, y: float, colour: str, label: str | None) -> None:
    style: dict[str, Any] = {
        "marker": "D",
        "markersize": 7,
        "markeredgecolor": "black",
        "linestyle": "",
    }
    axes.plot([x], [y], color=colour, label=label, zorder=5, **style)


def _baseline(axes: Axes, value: float | None, form: str) -> None:
    if value is not None:
        label = f"random actions ({value:{form}})"
        axes.axhline(value, color=RANDOM, linestyle=":", label=label)


def learning_curve(
    rows: Sequence[Row],
    *,
    title: str,
    random: Measured | None = None,
    before: Measured | None = None,
    after: Measured | None = None,
    steps: int = 0,
) -> bytes:
    """Return a PNG of two panels over the training steps: success and reward.

    `rows` are those of metrics.jsonl. `random`, `before` and `after` are evaluations of the whole
    set, in the form of summary.json; any may be missing while the run is under way. `steps` is the
    last step, where `after` is drawn.
    """
    figure = new_figure(10, 8)
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title)
    whole = [(0.0, before or {}), (float(steps), after or {})]
    chance = (random or {}).get("sampled")

    _training_curve(top, rows, "success")
    _eval_curves(top, rows, "success")
    _whole_evals(top, whole, steps)
    _baseline(top, chance["overall"]["rate"] if chance else None, ".1%")
    top.set_ylim(-0.03, 1.03)
    top.set_ylabel("success: share of correct answers")

    _training_curve(bottom, rows, "reward")
    _eval_curves(bottom, rows, "reward")
    _whole_rewards(bottom, whole)
    _baseline(bottom, chance.get("mean_reward") if chance else None, ".2f")
    bottom.set_ylabel("reward per episode")
    bottom.set_xlabel("GRPO step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))

    for axes in (top, bottom):
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
        else:
            place: dict[str, Any] = {"transform": axes.transAxes, "ha": "center"}
            axes.text(0.5, 0.5, "nothing logged yet", color=RANDOM, **place)
    return png(figure)
