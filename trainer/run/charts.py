"""Charts over the training steps, drawn with matplotlib: the report's, the live view's."""

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from matplotlib.transforms import Transform, offset_copy

from shared.console import percent

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
    """A horizontal line."""

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
    """Write the note and, of more than one curve, their names below the axis."""
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
