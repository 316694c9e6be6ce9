"""The live display in a terminal: two charts by plotext and the latest episode, above the bar."""

from typing import Any

import plotext
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trainer.grpo.live.snapshot import (
    LiveSnapshot,
    Trace,
    reward_chart,
    success_chart,
    trace_heading,
    trace_verdict,
)
from trainer.run.charts import Chart

# chart colour -> colour number of the terminal's palette
COLOURS = {"grey": 8, "blue": 12, "orange": 9, "violet": 5, "ochre": 3}
ASCII = dict(zip("│┌┐└┘─┤├┬┴→⏎…", "|++++-++++>/.", strict=True))
# Rows of a chart with its frame, in a terminal of HIGH rows or more, and in a lower one.
CHART_ROWS, LOW_CHART_ROWS = 12, 9
HIGH = 30
OTHER_ROWS = 2 + 1 + 5  # the panel's border, the chart's title and legend
LEAST_TRACE_ROWS = 4
BAR_ROWS = 2  # the progress bar below, and a spare row, so that nothing scrolls


def chart_lines(chart: Chart, columns: int, rows: int, *, ascii_only: bool = False) -> Group:
    """Return a chart with its title above and, below, a legend with each curve's latest value."""
    marker = "*" if ascii_only else "braille"
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plot_size(columns, rows)
    legend: list[tuple[str, int]] = []
    for line in chart.baselines:
        plotext.hline(line.y, COLOURS[line.colour])
    for series in reversed([line for line in chart.series if line.kind != "faint"]):
        colour, points = COLOURS[series.colour], series.points
        latest = f"{chart.text(points[-1])} " if points else ""
        legend.insert(0, (f"{latest}{series.label}", colour))
        if points:
            xs, ys = [point.x for point in points], [point.y for point in points]
            plotext.plot(xs, ys, marker=marker, color=colour)
    low, high = chart.bounds
    plotext.ylim(low, high)
    plotext.yticks([low, high], [chart.form(low or 0.0), chart.form(high or 0.0)])
    plotext.xlim(0, max(1, chart.steps or 0))
    plotext.xticks([0, max(1, chart.steps or 0)], ["0", f"step {chart.steps}"])
    legend += [(line.label, COLOURS[line.colour]) for line in chart.baselines]
    options: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    return Group(
        Text(chart.title, style="bold", **options),
        Text.from_ansi(plotext.build().rstrip("\n"), no_wrap=True),
        *(Text.assemble(("━ ", f"color({colour})"), text, **options) for text, colour in legend),
    )


def trace_lines(trace: Trace, columns: int, rows: int) -> list[Text]:
    """Return the episode in at most `rows` lines, each cut at `columns`; the rest is counted."""
    lines = [Text(trace.question, style="italic")]
    for number, turn in enumerate(trace.episode.turns, start=1):
        lines.append(Text.assemble((f"{number}. ", "dim"), (_one_line(turn.action), "bold")))
        if observation := _one_line(turn.observation):
            lines.append(Text.assemble(("   → ", "dim"), observation))
    if len(lines) >= rows:
        left_out = len(lines) - (rows - 2)
        lines = [*lines[: rows - 2], Text(f"   ... {left_out} more lines", style="dim")]
    lines.append(Text(trace_verdict(trace), style="green" if trace.episode.correct else "red"))
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    return lines


def _one_line(text: str) -> str:
    return " ⏎ ".join(filter(None, text.splitlines()))


def to_ascii(text: str) -> str:
    """Return `text` for a terminal without Unicode, as wide as before."""
    return "".join(
        char if char.isascii() else ASCII.get(char, "?" * cell_len(char)) for char in text
    )


class Dashboard:
    """A snapshot, rendered once per terminal size: the bar redraws it several times per second."""

    def __init__(self, snapshot: LiveSnapshot) -> None:
        self._snapshot = snapshot
        self._rendered: tuple[tuple[int, int], list[list[Segment]]] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        size = (console.width, console.height)
        if self._rendered is None or self._rendered[0] != size:
            shown = self._layout(*size, ascii_only=options.ascii_only)
            # More rows than the terminal has would scroll at every redraw.
            lines = console.render_lines(shown, options.update(width=size[0], height=None))
            lines = lines[: max(0, size[1] - BAR_ROWS)]
            if options.ascii_only:
                lines = [
                    [Segment(to_ascii(part.text), part.style) for part in line] for line in lines
                ]
            self._rendered = (size, lines)
        for line in self._rendered[1]:
            yield from line
            yield Segment.line()

    def _layout(self, width: int, height: int, *, ascii_only: bool) -> RenderableType:
        snapshot, half = self._snapshot, (width - 6) // 2
        rows = CHART_ROWS if height >= HIGH else LOW_CHART_ROWS
        charts = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(2):
            charts.add_column(width=half, no_wrap=True)
        charts.add_row(
            *(
                chart_lines(chart, half, rows, ascii_only=ascii_only)
                for chart in (reward_chart(snapshot), success_chart(snapshot))
            )
        )
        panels: list[RenderableType] = [Panel(charts, title=Text(snapshot.heading))]
        free = height - BAR_ROWS - (rows + OTHER_ROWS) - 2
        if snapshot.traces and free >= LEAST_TRACE_ROWS:
            trace = snapshot.traces[-1]
            lines = Group(*trace_lines(trace, width - 4, free))
            panels.append(Panel(lines, title=Text(trace_heading(trace)), title_align="left"))
        return Group(*panels)
