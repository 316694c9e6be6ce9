"""Charts over the training steps, drawn with matplotlib: the report's, the live view's."""

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, PercentFormatter

from shared.console import percent

# The report's style sheet has a dark variant of each under the same name.
COLOURS = {
    "grey": "#6b7280", "blue": "#1f6fb2", "orange": "#c2410c", "green": "#1a7f4b",
    "ochre": "#8a6d00", "violet": "#7c3aa8", "line": "#d5dae0", "soft": "#59636e",
}  # fmt: skip
PANEL_INCHES = (7.6, 4.2)
NOTE_CHARS = 115  # of a line below a picture
LABEL_WIDTH = 0.022  # of a character below the x axis on a narrow screen, as a share of the axis

Kind = Literal["line", "faint", "marked", "dashed", "diamonds", "broken"]
_LOOKS: dict[Kind, dict[str, Any]] = {
    "line": {"lw": 2.2},
    "faint": {"ls": "", "marker": ".", "ms": 5, "mew": 0, "alpha": 0.45},
    "marked": {"lw": 2, "marker": "o", "ms": 5},
    "dashed": {"lw": 1.5, "ls": (0, (4, 3)), "marker": "o", "ms": 5},
    "diamonds": {"ls": "", "marker": "D", "ms": 7},
    "broken": {"lw": 2.2, "ls": (0, (3, 2))},
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
    """A horizontal line: a value that does not depend on the step, and its 95 % interval."""

    label: str
    y: float
    colour: str = "grey"
    interval: tuple[float, float] | None = None


def axis_number(value: float) -> str:
    """Format with three significant digits: 1,234 or 0.25."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def value_text(
    form: Callable[[float], str], value: float, low: float | None = None, high: float | None = None
) -> str:
    """Format a value, and its interval if it has one: `0.5 [0.3, 0.7]`."""
    if low is None or high is None:
        return form(value)
    return f"{form(value)} [{form(low)}, {form(high)}]"


@dataclass(frozen=True)
class Chart:
    """One picture over the training steps. `note` says what was smoothed or left out."""

    key: str  # unique among the charts of a page
    title: str
    series: Sequence[Series] = ()
    baselines: Sequence[Baseline] = ()
    bounds: tuple[float | None, float | None] = (None, None)  # of the y axis; None: from the values
    form: Callable[[float], str] = axis_number
    stacked: bool = False  # stacked columns: the series are shares of a whole
    steps: int | None = None  # the x axis ends here; None: at the last point
    note: str = ""
    absent: str = "The run logged no value."  # shown in place of an empty chart
    x_label: str = "GRPO step"

    @property
    def empty(self) -> bool:
        return not any(series.points for series in self.series)

    @property
    def last_step(self) -> float:
        """The step at which the x axis ends."""
        ends = (point.x for series in self.series for point in series.points)
        return self.steps if self.steps is not None else max(ends, default=0)

    def text(self, point: Point) -> str:
        return value_text(self.form, point.y, point.low, point.high)


def plot(axes: Axes, chart: Chart, last_step: float | None = None) -> None:
    """Draw the chart on `axes`, without its title and the names of its curves.

    `last_step` is labelled on the x axis, by default the chart's.
    """
    if chart.stacked:
        _plot_columns(axes, chart.series)
    else:
        for series in chart.series:
            if series.points:
                _plot_series(axes, series)
    for baseline in chart.baselines:
        colour = COLOURS[baseline.colour]
        axes.axhline(baseline.y, color=colour, ls=":", lw=1.4, label=baseline.label)
        if baseline.interval is not None:
            axes.axhspan(*baseline.interval, color=colour, alpha=0.08, lw=0)
    if chart.steps is not None:
        axes.set_xlim(-0.02 * max(1, chart.steps), 1.02 * max(1, chart.steps))
    axes.set_ylim(*chart.bounds)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    if chart.form is percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    last = chart.last_step if last_step is None else last_step
    axes.xaxis.set_major_locator(FixedLocator(step_ticks(axes.get_xlim()[0], last)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel(chart.x_label, color=COLOURS["soft"], loc="right")
    axes.tick_params(colors=COLOURS["soft"], length=0)
    axes.grid(axis="y", color=COLOURS["line"], lw=1)
    axes.set_axisbelow(True)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(COLOURS["soft"])


def step_ticks(first: float, last: float) -> list[float]:
    """Return round steps for the x axis, and the last step in place of one that is too near."""
    span = last - max(first, 0)
    near = LABEL_WIDTH * (len(f"{last:,.0f}") + 1) * span
    rounded = MaxNLocator(nbins=6, integer=True).tick_values(first, last)  # fractions below 1 step
    whole = (float(step) for step in rounded if float(step).is_integer())
    return [*(step for step in whole if first <= step < last - near), last]


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


def _plot_columns(axes: Axes, parts: Sequence[Series]) -> None:
    steps = sorted({point.x for series in parts for point in series.points})
    width = 0.85 * ((steps[-1] - steps[0]) / (len(steps) - 1) if len(steps) > 1 else 1)
    tops = dict.fromkeys(steps, 0.0)
    for series in parts:
        xs, ys = [point.x for point in series.points], [point.y for point in series.points]
        axes.bar(xs, ys, width, [tops[x] for x in xs], color=COLOURS[series.colour])
        for x, y in zip(xs, ys, strict=True):
            tops[x] += y


def png(charts: Sequence[Chart], title: str, dpi: int = 90) -> bytes:
    """Draw the charts side by side as a PNG, each with its title above and its curves' names."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(charts), height), dpi=dpi, layout="constrained")
    figure.suptitle(title, fontsize=11)
    for axes, chart in zip(figure.subplots(1, len(charts), squeeze=False)[0], charts, strict=True):
        plot(axes, chart)
        axes.set_title(chart.title, fontsize=10)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_fontsize(9)
        note = "\n".join(textwrap.wrap(chart.note, NOTE_CHARS))
        soft = COLOURS["soft"]
        axes.text(0, -0.17, note, transform=axes.transAxes, va="top", fontsize=7.5, color=soft)
        if chart.empty:
            axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center")
        if axes.get_legend_handles_labels()[1]:
            beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "handlelength": 3}
            axes.legend(**beside, frameon=False, fontsize=7.5, labelcolor="linecolor")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
