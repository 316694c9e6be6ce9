"""Charts over the training steps, drawn with matplotlib: learning_curve.png, the report's, the live
view's, and success and reward, which they share."""

import io
import math
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import Transform, offset_copy

from shared.console import percent
from shared.run_stats import MODES, wilson_interval

COLOURS = {
    "grey": "#6b7280", "blue": "#1f6fb2", "orange": "#c2410c", "green": "#1a7f4b",
    "violet": "#7c3aa8", "line": "#d5dae0", "soft": "#59636e",
}  # fmt: skip
NOTE_CHARS = 115  # of a line below a picture

Kind = Literal["line", "faint", "marked", "dashed", "diamonds"]
_LOOKS: dict[Kind, dict[str, Any]] = {
    "line": {"lw": 2.2},
    "faint": {"ls": "", "marker": ".", "ms": 5, "mew": 0, "alpha": 0.45},
    "marked": {"lw": 2, "marker": "o", "ms": 5},
    "dashed": {"lw": 1.5, "ls": (0, (4, 3)), "marker": "o", "ms": 5},
    "diamonds": {"ls": "", "marker": "D", "ms": 7},
}


@dataclass(frozen=True)
class Point:
    """A value at a step, with the ends of its interval or range where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A curve or a set of markers. `colour` is a name in `COLOURS`."""

    label: str
    points: Sequence[Point]
    colour: str
    kind: Kind = "line"
    band: bool = False  # draw low and high as an area along the curve, not as whiskers


@dataclass(frozen=True)
class Baseline:
    label: str
    y: float
    colour: str = "grey"


@dataclass(frozen=True)
class Chart:
    """One picture over the training steps. `note` says what was smoothed or left out."""

    key: str  # unique among the charts of a page
    title: str
    series: Sequence[Series] = ()
    baselines: Sequence[Baseline] = ()
    bounds: tuple[float | None, float | None] = (None, None)  # of the y axis; None: from the values
    form: Callable[[float], str] | None = None  # `percent`, or plain numbers
    steps: int | None = None  # the x axis ends here; None: at the last point
    note: str = ""
    x_label: str = "GRPO step"

    @property
    def empty(self) -> bool:
        return not any(series.points for series in self.series)


def _plot(axes: Axes, chart: Chart) -> None:
    for series in chart.series:
        if series.points:
            _plot_series(axes, series)
    for baseline in chart.baselines:
        colour = COLOURS[baseline.colour]
        axes.axhline(baseline.y, color=colour, ls=":", lw=1.4, label=baseline.label)
    if chart.steps is not None:
        axes.set_xlim(-0.02 * max(1, chart.steps), 1.02 * max(1, chart.steps))
    axes.set_ylim(*chart.bounds)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    if chart.form is percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(chart.x_label, color=COLOURS["soft"], loc="right", fontsize=9)
    axes.tick_params(colors=COLOURS["soft"], length=0, labelsize=8)
    axes.grid(axis="y", color=COLOURS["line"], lw=1)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["soft"])


def _plot_series(axes: Axes, series: Series) -> None:
    colour, kind = COLOURS[series.colour], series.kind
    if kind == "line" and len(series.points) == 1:
        kind = "marked"
    look = _LOOKS[kind]
    xs, ys = [point.x for point in series.points], [point.y for point in series.points]
    label = None if kind == "faint" else series.label  # its running mean is named
    axes.plot(xs, ys, color=colour, clip_on="marker" not in look, zorder=3, label=label, **look)
    ranged = [(p.x, p.y, p.low, p.high) for p in series.points if None not in (p.low, p.high)]
    if not ranged:
        return
    xs, ys, lows, highs = map(list, zip(*ranged, strict=True))
    if series.band and len(ranged) > 1:  # one point has no area
        axes.fill_between(xs, lows, highs, color=colour, alpha=0.16, lw=0)
    else:
        ends = [[y - low for y, low in zip(ys, lows, strict=True)],
                [high - y for y, high in zip(ys, highs, strict=True)]]  # fmt: skip
        axes.errorbar(xs, ys, ends, color=colour, alpha=0.75, capsize=4, fmt="none", clip_on=False)


def _explain(axes: Axes, note: str, below: Transform) -> None:
    curves = axes.get_legend_handles_labels()[0]
    legend = axes.legend(
        handles=curves if len(curves) > 1 else [],
        title="\n".join(textwrap.wrap(note, NOTE_CHARS)),
        alignment="left",
        bbox_to_anchor=(0, 0),
        bbox_transform=below,
        borderaxespad=0,
        borderpad=0,
        columnspacing=1,
        fontsize=8,
        frameon=False,
        handlelength=3,
        labelcolor="linecolor",
        loc="upper left",
        ncols=2,
        title_fontsize=7.5,
    )
    legend.get_title().set_color(COLOURS["soft"])


def png(
    charts: Sequence[Chart],
    title: str = "",
    dpi: int = 90,
    inches: tuple[float, float] = (7.6, 4.8),
) -> bytes:
    """Draw the charts side by side as a PNG, each with its note and its curves' names below."""
    width, height = inches  # of each chart
    figure = Figure(figsize=(width * len(charts), height), dpi=dpi, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        _plot(axes, chart)
        axes.set_title(chart.title, loc="left", fontsize=10)
        if chart.empty:
            axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center")
        _explain(axes, chart.note, offset_copy(axes.transAxes, figure, y=-34, units="points"))
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


OF_MODE = {"train": "blue", "greedy": "orange", "sampled": "green", "random": "grey"}
SMOOTHING_STEPS = 9  # window of the running mean
MEAN = f"running mean of {SMOOTHING_STEPS} logged steps, of fewer at both ends"
BAND = "its 95 % t interval, each step counted as one value"
SMOOTHED = f"Line: {MEAN}; its area: {BAND}; dots: as logged."
TEMPERATURES = "Training episodes are sampled at the run's temperature, sampled evaluations at 1."
EPISODES = "training episodes"

# two-sided 95 % quantiles of Student's t, by the number of values in a window
T_95 = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}

Row = Mapping[str, Any]  # of metrics.jsonl
Summaries = Mapping[str, Mapping[str, Mapping[str, Any]]]  # phase -> mode -> measurement


def points(rows: Sequence[Row], key: str) -> list[Point]:
    """Return the finite values of `key` by their steps; the last row of a step wins."""
    values = {
        float(row["step"]): float(row[key])
        for row in rows
        if isinstance(row.get(key), (int, float)) and math.isfinite(row[key]) and "step" in row
    }
    return [Point(step, values[step]) for step in sorted(values)]


def smoothed(values: Sequence[Point]) -> list[Point]:
    """Return the mean of the `SMOOTHING_STEPS` values around each, of fewer at both ends, and its
    95 % t interval. A step counts as one value, as the episodes of a question are alike: the
    interval of a share of episodes would be too narrow."""
    half, means = SMOOTHING_STEPS // 2, []
    for index, point in enumerate(values):
        near = [one.y for one in values[max(0, index - half) : index + half + 1]]
        mean = statistics.fmean(near)
        error = T_95[len(near)] * statistics.stdev(near) / math.sqrt(len(near))
        means.append(Point(point.x, mean, mean - error, mean + error))
    return means


def logged_and_mean(values: Sequence[Point], label: str, colour: str) -> list[Series]:
    """Return a curve as logged, as faint dots, and its running mean with its band; without the mean
    if there are fewer values than its window has."""
    if len(values) < SMOOTHING_STEPS:
        return [Series(label, values, colour, "marked")] if values else []
    logged = Series(f"{label}, as logged", values, colour, "faint")
    return [logged, Series(label, smoothed(values), colour, band=True)]


def smoothing_note(lines: Sequence[Series]) -> str:
    """Return what a chart with `logged_and_mean` says of its running means, if it has any."""
    return SMOOTHED if any(one.kind == "faint" for one in lines) else ""


def success_chart(rows: Sequence[Row], summaries: Summaries, last_step: int) -> Chart:
    lines = logged_and_mean(points(rows, "success"), EPISODES, OF_MODE["train"])
    for mode in MODES:
        if values := curve_points(rows, mode):
            lines.append(Series(curve_label(rows, mode), values, OF_MODE[mode], "dashed"))
    for mode in MODES:
        rates = [
            (step, rate)
            for phase, step in (("before", 0), ("after", last_step))
            if (rate := rate_of(summaries, phase, mode)) is not None
        ]
        if rates:
            marks = [Point(step, rate["rate"], *rate["ci95"]) for step, rate in rates]
            label = f"before and after, {mode} (n={rates[0][1]['n']})"
            lines.append(Series(label, marks, OF_MODE[mode], "diamonds"))
    return Chart(
        "success",
        "Success: share of correct answers",
        lines,
        _baselines(lambda phase, mode: (rate_of(summaries, phase, mode) or {}).get("rate")),
        bounds=(0.0, 1.0),
        form=percent,
        note=f"{smoothing_note(lines)} Whiskers: 95 % Wilson intervals. {TEMPERATURES}".lstrip(),
    )


def reward_chart(rows: Sequence[Row], summaries: Summaries) -> Chart:
    lines = logged_and_mean(points(rows, "reward"), EPISODES, OF_MODE["train"])
    for mode in MODES:
        if values := points(rows, f"eval_{mode}_reward"):
            lines.append(Series(curve_label(rows, mode), values, OF_MODE[mode], "dashed"))
    baselines = _baselines(lambda phase, mode: _of(summaries, phase, mode).get("mean_reward"))
    weights = "Measurements weigh correctness, progress and operation 1, 0.15, 1."
    note = f"{smoothing_note(lines)} {weights}".lstrip()
    return Chart("reward", "Reward per episode", lines, baselines, note=note)


def curve_label(rows: Sequence[Row], mode: str) -> str:
    size = max((row["eval_n"] for row in rows if row.get("eval_n")), default="?")
    return f"{size} eval questions, {mode}"


def rate_of(
    summaries: Summaries, phase: str, mode: str, part: str = "overall"
) -> Mapping[str, Any] | None:
    rate = _of(summaries, phase, mode).get(part)
    return rate if rate and rate["rate"] is not None else None


def _of(summaries: Summaries, phase: str, mode: str) -> Mapping[str, Any]:
    return summaries.get(phase, {}).get(mode, {})


def _baselines(value: Callable[[str, str], float | None]) -> list[Baseline]:
    lines = [
        (f"before training, {mode}", value("before", mode), OF_MODE[mode]) for mode in MODES
    ] + [("random actions", value("random", "sampled"), OF_MODE["random"])]
    return [Baseline(label, y, colour) for label, y, colour in lines if y is not None]


def curve_points(rows: Sequence[Row], mode: str) -> list[Point]:
    found = []
    for row in rows:
        rate, n = row.get(f"eval_{mode}_success"), row.get("eval_n")
        if rate is not None and n:
            found.append(Point(row["step"], rate, *wilson_interval(round(rate * n), n)))
    return sorted(found, key=lambda point: point.x)


def headline(name: str, seed: int, summaries: Summaries) -> str:
    changes = [
        f"{mode} {percent(before['rate'])} → {percent(after['rate'])}"
        for mode in MODES
        if (before := rate_of(summaries, "before", mode))
        and (after := rate_of(summaries, "after", mode))
    ]
    result = f": success {', '.join(changes)}" if changes else ""
    return f"GRPO of {name}, seed {seed}{result}"


def learning_curve(
    rows: Sequence[Row], summaries: Summaries, *, title: str, steps: int = 0
) -> bytes:
    """Return a PNG of two charts over the training steps, success and reward. `rows` are those of
    metrics.jsonl; `steps` is the last step, where `after` is drawn."""
    charts = [success_chart(rows, summaries, steps), reward_chart(rows, summaries)]
    return png(charts, title, dpi=120)
