"""The figures of both commands, drawn without a display."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from benchmarks.learning.bench import Modes
from shared.run_files import RunSummary
from shared.run_stats import MODES, RateSummary
from trainer.run.plots import COLOURS, Row, new_figure, png, series

BAR = 0.38  # height of a bar; the two of a policy take one unit
RunCurves = tuple[str, Sequence[Row], RunSummary]  # label, rows of metrics.jsonl, summary.json


def _percent(rate: RateSummary) -> tuple[float, list[float]]:
    """Return a rate in percent, and the lengths of its interval below and above."""
    value = 100 * (rate["rate"] or 0.0)
    low, high = (100 * end for end in rate["ci95"])
    return value, [max(0.0, value - low), max(0.0, high - value)]


def _finish(axes: Axes, grid: str) -> None:
    axes.grid(axis=grid, alpha=0.25)  # type: ignore[arg-type]
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower right", fontsize=8)


def bars(policies: Sequence[tuple[str, Modes]], title: str, part: str = "unseen") -> bytes:
    """Return a PNG with a bar and its 95 % interval per policy and mode, the first at the top."""
    figure = new_figure(9, 0.62 * len(policies) + 1.4)
    axes = figure.subplots()
    for mode, offset in zip(MODES, (-BAR / 2, BAR / 2), strict=True):
        label: str | None = mode
        for place, (_, modes) in enumerate(policies):
            rate = modes.get(mode, {}).get(part)
            if rate and rate["rate"] is not None:
                value, (below, above) = _percent(rate)
                style: dict[str, Any] = {"color": COLOURS[mode], "alpha": 0.85, "capsize": 3}
                at = place + offset
                axes.barh(at, value, BAR, xerr=[[below], [above]], label=label, **style)
                axes.text(value + above + 1, at, f"{value:.1f}", va="center", fontsize=8)
                label = None
    axes.set_yticks(range(len(policies)), [label for label, _ in policies])
    axes.invert_yaxis()
    axes.set_xlim(0, 108)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel(f"success on {part} databases, %, with 95 % intervals")
    axes.set_title(title)
    _finish(axes, "x")
    return png(figure)


def mean_curve(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], list[float]]:
    """Return the mean of (steps, values) curves, at the steps that all of them have."""
    points = [dict(zip(steps, values, strict=True)) for steps, values in curves if steps]
    common = sorted(set.intersection(*map(set, points))) if points else []
    return common, [sum(one[step] for one in points) / len(points) for step in common]


def seed_curves(runs: Sequence[RunCurves]) -> bytes:
    """Return a PNG with one panel per mode: the eval curve of every run, and their mean (thick).

    Diamonds are before and after on the whole eval set, with 95 % intervals.
    """
    figure = new_figure(11, 4.6)
    for axes, mode in zip(figure.subplots(1, len(MODES), sharey=True), MODES, strict=True):
        _seed_panel(axes, mode, runs)
    return png(figure)


def _seed_panel(axes: Axes, mode: str, runs: Sequence[RunCurves]) -> None:
    curves = [series(rows, f"eval_{mode}_success") for _, rows, _ in runs]
    last = max((summary["train_steps"] for _, _, summary in runs), default=1)
    for index, (label, rows, summary) in enumerate(runs):
        steps, values = curves[index]
        colour, aside = f"C{index}", 0.008 * last * (index - (len(runs) - 1) / 2)
        n = next((row["eval_n"] for row in rows if "eval_n" in row), "?")
        percents = [100 * value for value in values]
        axes.plot(steps, percents, color=colour, linewidth=1, label=f"{label} (n={n})")
        for phase, step in (("before", 0), ("after", summary["train_steps"])):
            modes: Mapping[str, Any] = summary["evaluations"].get(phase, {})
            rate = modes.get(mode, {}).get("overall")
            if rate and rate["rate"] is not None:
                value, (below, above) = _percent(rate)
                style: dict[str, Any] = {"marker": "D", "markersize": 5, "capsize": 3}
                error = [[below], [above]]
                axes.errorbar([step + aside], [value], error, color=colour, **style)
    steps, values = mean_curve(curves)
    if steps and len(runs) > 1:
        percents = [100 * value for value in values]
        axes.plot(steps, percents, color="black", linewidth=2.8, label="mean of the curves")
    axes.set_title(f"{mode}; diamonds: the whole eval set, 95 % intervals")
    axes.set_xlabel("GRPO step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("success, %")
    axes.set_ylim(-3, 103)
    _finish(axes, "both")
