"""The curves of a report as one PNG: a panel or two per part that was measured."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from trainer.run.charts import COLOURS

COLUMNS = 3
PANEL_INCHES = (3.6, 2.8)
STYLE = {"axes.titlelocation": "left", "axes.titlesize": 11, "legend.frameon": False}
Panel = Callable[[Axes, Any], None]


def _curve(axes: Axes, rows: Any, x: str, y: str, colour: str, label: str | None = None) -> None:
    points = [row[x] for row in rows], [row[y] for row in rows]
    axes.plot(*points, color=COLOURS[colour], marker="o", ms=3.5, lw=1.8, label=label)


def _log(axes: Axes, title: str, x: str, y: str, *, both: bool = False) -> None:
    axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log" if both else "linear")
    if not both:
        _from_zero(axes)


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(0, 1.15 * axes.dataLim.y1)


def _speed(axes: Axes, rows: Any) -> None:
    _curve(axes, rows, "episodes", "steps_per_s", "blue")
    _log(axes, "Speed of one server", "episodes at once", "steps/s")


def _wait(axes: Axes, rows: Any) -> None:
    _curve(axes, rows, "episodes", "p99_ms", "orange", "p99")
    _curve(axes, rows, "episodes", "p50_ms", "blue", "median")
    _log(axes, "Wait for a step at full speed", "episodes at once", "ms", both=True)
    axes.legend()


def _runaway(axes: Axes, found: Any) -> None:
    names = {"p50_ms": "median", "p99_ms": "p99"}
    ways = ("alone", "beside")
    waits = {f"{names[key]}\n{way}": found[way][key] for key in names for way in ways}
    colours = [COLOURS["blue"], COLOURS["orange"]] * len(names)
    bars = axes.bar([*waits], [*waits.values()], width=0.55, color=colours)
    axes.bar_label(bars, fmt="%.1f", padding=2)
    axes.set_ylim(0, 1.15 * max(waits.values()))
    axes.set(title="Wait beside a runaway query", ylabel=f"ms, {found['episodes']} episodes")


def _rows(axes: Axes, rows: Any) -> None:
    for way, colour, label in (("key", "blue", "by key"), ("scan", "orange", "without an index")):
        _curve(
            axes,
            [{"rows": row["rows"], **row[way]} for row in rows],
            *("rows", "steps_per_s", colour, label),
        )
    _log(axes, "Size of a table", "rows", "steps/s", both=True)
    axes.legend()


def _start(axes: Axes, rows: Any) -> None:
    _curve(axes, rows, "questions", "start_s", "blue")
    _log(axes, "Start of a server", "questions", "seconds", both=True)
    _values(axes, rows, "questions", "start_s", ".1f")


def _questions(axes: Axes, rows: Any) -> None:
    _curve(axes, rows, "questions", "mib", "green")
    _log(axes, "Memory of questions", "questions", "MiB", both=True)
    _values(axes, rows, "questions", "mib", ",.0f")


def _values(axes: Axes, rows: Any, x: str, y: str, form: str) -> None:
    """Write each value beside its point, as the axis has few numbers."""
    place: dict[str, Any] = {"xytext": (-4, 5), "textcoords": "offset points", "ha": "right"}
    for row in rows:
        axes.annotate(format(row[y], form), (row[x], row[y]), fontsize=9, **place)
    axes.margins(x=0.18, y=0.18)


def _open(axes: Axes, found: Any) -> None:
    _curve(axes, found["memory"], "open", "mib", "green")
    axes.set(title="Memory of open episodes", xlabel="open episodes", ylabel="MiB")
    _from_zero(axes)


def _steps(axes: Axes, found: Any) -> None:
    _curve(axes, found["memory"], "steps", "mib", "green")
    axes.set(title="Memory over time", xlabel="steps taken", ylabel="heap, MiB")
    _from_zero(axes)


PANELS: tuple[tuple[str, Panel], ...] = (
    ("latency", _speed),
    ("latency", _wait),
    ("runaway", _runaway),
    ("rows", _rows),
    ("questions", _start),
    ("questions", _questions),
    ("open", _open),
    ("steps", _steps),
)


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the parts of a report."""
    panels = [(part, panel) for part, panel in PANELS if part in report]
    lines = -(-len(panels) // COLUMNS)
    width, height = PANEL_INCHES
    with rc_context(STYLE):
        figure = Figure(figsize=(width * COLUMNS, height * lines), dpi=110, layout="constrained")
        for place, (part, panel) in enumerate(panels, 1):
            axes = figure.add_subplot(lines, COLUMNS, place)
            panel(axes, report[part])
            axes.grid(alpha=0.25)
            axes.set_axisbelow(True)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_minor_formatter(NullFormatter())
                if axis is axes.yaxis or axes.lines:  # bars have names below them
                    axis.set_major_formatter(FuncFormatter(_number))
                    if axis.get_scale() == "linear":
                        axis.set_major_locator(MaxNLocator(5))
        figure.savefig(path, format="png")


def _number(value: float, _: int) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
