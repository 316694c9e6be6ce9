"""The live display in a terminal: two charts by plotext and the latest episode, above the bar."""

import plotext
from rich.console import Group, RenderableType
from rich.panel import Panel
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
HIGH = 30  # rows of a terminal with higher charts
CHART_ROWS, LOW_CHART_ROWS = 12, 9  # with the frame
OTHER_ROWS = 2 + 1 + 5  # the panel's border, the chart's title and legend
LEAST_TRACE_ROWS = 4
BAR_ROWS = 2  # the progress bar below, and a spare row, so that nothing scrolls


def dashboard(snapshot: LiveSnapshot, width: int, height: int) -> RenderableType:
    """Return what a terminal of that size shows."""
    half = (width - 6) // 2
    rows = CHART_ROWS if height >= HIGH else LOW_CHART_ROWS
    charts = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        charts.add_column(width=half, no_wrap=True)
    both = (reward_chart(snapshot), success_chart(snapshot))
    charts.add_row(*(chart_lines(chart, half, rows) for chart in both))
    shown: list[RenderableType] = [Panel(charts, title=Text(snapshot.heading))]
    free = height - BAR_ROWS - (rows + OTHER_ROWS) - 2
    if snapshot.traces and free >= LEAST_TRACE_ROWS:
        trace = snapshot.traces[-1]
        lines = Group(*trace_lines(trace, free))
        shown.append(Panel(lines, title=Text(trace_heading(trace)), title_align="left"))
    return Group(*shown)


def chart_lines(chart: Chart, columns: int, rows: int) -> Group:
    """Return a chart with its title above and, below, a legend with each curve's latest value."""
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plot_size(columns, rows)
    legend: list[tuple[str, str]] = []
    for line in chart.baselines:
        plotext.hline(line.y, COLOURS[line.colour])
    for series in (one for one in chart.series if one.kind != "faint"):
        points = series.points
        latest = f"{chart.text(points[-1])} " if points else ""
        legend.append((f"{latest}{series.label}", series.colour))
        if points:
            xs, ys = [point.x for point in points], [point.y for point in points]
            plotext.plot(xs, ys, marker="braille", color=COLOURS[series.colour])
    legend += [(line.label, line.colour) for line in chart.baselines]
    low, high = (bound or 0.0 for bound in chart.bounds)
    last = max(1, chart.steps or 0)
    plotext.ylim(low, high)
    plotext.yticks([low, high], [chart.form(low), chart.form(high)])
    plotext.xlim(0, last)
    plotext.xticks([0, last], ["0", f"step {chart.steps}"])
    return Group(
        _line((chart.title, "bold")),
        Text.from_ansi(plotext.build().rstrip("\n"), no_wrap=True),
        *(_line(("━ ", f"color({COLOURS[colour]})"), text) for text, colour in legend),
    )


def trace_lines(trace: Trace, rows: int) -> list[Text]:
    """Return the episode in at most `rows` lines; the rest is counted."""
    lines = [_line((trace.question, "italic"))]
    for number, turn in enumerate(trace.episode.turns, start=1):
        lines.append(_line((f"{number}. ", "dim"), (_one_line(turn.action), "bold")))
        if observation := _one_line(turn.observation):
            lines.append(_line(("   → ", "dim"), observation))
    if len(lines) >= rows:
        left_out = len(lines) - (rows - 2)
        lines = [*lines[: rows - 2], _line((f"   ... {left_out} more lines", "dim"))]
    return [*lines, _line((trace_verdict(trace), "green" if trace.episode.correct else "red"))]


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return one line of (text, style), which is cut at the width that there is."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _one_line(text: str) -> str:
    return " ⏎ ".join(filter(None, text.splitlines()))
