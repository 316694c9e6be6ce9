"""Charts as inline SVG, coloured by the page's style sheet.

Every step has a column that names its values, for the pointer and, with the page's script, for the
arrow keys; `values` is the table of them.
"""

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainer.run.charts import COLOURS, Chart, Point, plot

WIDTH, HEIGHT = 560, 300  # user units; the picture scales to its column
# Margins for the tick labels, which are larger on a narrow screen.
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 12, 50
MAX_POINTS = 300  # of a curve: a longer one is drawn as means of neighbouring steps
MAX_ROWS = 120  # of the table, and columns for the pointer


def draw(chart: Chart) -> Markup:
    """Return the chart's `<svg>`; empty where it has no point."""
    if chart.empty:
        return Markup("")
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    axes = figure.subplots()
    figure.subplots_adjust(LEFT / WIDTH, BOTTOM / HEIGHT, 1 - RIGHT / WIDTH, 1 - TOP / HEIGHT)
    # The series of a stack have the same steps, so they are thinned alike.
    thin = [replace(series, points=thinned(series.points)) for series in chart.series]
    plot(axes, replace(chart, series=thin), chart.last_step)
    axes.tick_params(labelsize=13, pad=7)
    axes.xaxis.label.set_fontsize(13)
    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": chart.key}):
        figure.savefig(file, format="svg", transparent=True)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" stroke-linejoin="round" aria-label="{}">{}{}</svg>'
    ).format(
        *(WIDTH, HEIGHT, chart.title, _body(file.getvalue())), Markup("").join(_hits(chart, axes))
    )


def _body(svg: str) -> Markup:
    """Return the drawing inside matplotlib's SVG in a form that the page can hold.

    The page's Content-Security-Policy blocks inline styles, so they become attributes; its ids must
    be unique, so those of groups go; its colours are variables, for the dark theme.
    """
    svg = svg[svg.index('<g id="figure_1">') : svg.rindex("</svg>")]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    # the style of a marker once, not at each point
    styles = dict(re.findall(r'<use xlink:href="#(\w+)"[^>]*( style="[^"]*")', svg))
    for marker, style in styles.items():
        path = rf'(<path id="{marker}"[^>]*?)( style="[^"]*")?/>'
        svg = re.sub(path, rf"\1{style}/>", svg)
    svg = re.sub(r'(<use [^>]*) style="[^"]*"', r"\1", svg)
    svg = re.sub(r"<!--.*?-->|\s+", " ", svg)
    # coordinates to two decimals; the labels between the tags keep theirs
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r' style="([^"]*)"', lambda match: _attributes(match[1]), svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(colour, f"var(--{name})")
    return Markup(svg)  # by matplotlib of numbers: no text of a run is in it


def _attributes(style: str) -> str:
    pairs = (declaration.split(": ", 1) for declaration in style.split("; "))
    return "".join(f' {name}="{value}"' for name, value in pairs if name != "font")


def thinned(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """Return at most `limit` points, each the mean of equally many neighbours, with their range."""
    size = math.ceil(len(points) / limit)
    thin = []
    for start in range(0, len(points), size or 1):
        near = points[start : start + size]
        lows = [point.low for point in near if point.low is not None]
        highs = [point.high for point in near if point.high is not None]
        x, y = fmean(point.x for point in near), fmean(point.y for point in near)
        thin.append(Point(x, y, min(lows, default=None), max(highs, default=None)))
    return thin


def _hits(chart: Chart, axes: Axes) -> Iterable[Markup]:
    """Yield an invisible column for each step, with the step's values as its title."""
    rows = values(chart)
    xs = [float(axes.transData.transform((x, 0))[0]) for x, _ in rows]
    edges = [LEFT, *((a + b) / 2 for a, b in pairwise(xs)), WIDTH - RIGHT]
    rect = '<rect class="hit" x="{:.1f}" y="{}" width="{:.1f}" height="{}" data-x="{:.1f}">'
    for (step, cells), x, (left, right) in zip(rows, xs, pairwise(edges), strict=True):
        shown = zip(chart.series, cells, strict=True)
        text = "; ".join(f"{series.label}: {cell}" for series, cell in shown if cell)
        yield Markup(rect + "<title>{}</title></rect>").format(
            *(left, TOP, max(0.5, right - left), HEIGHT - TOP - BOTTOM, x),
            f"step {step:,.0f}: {text}",
        )


def values(chart: Chart) -> list[tuple[float, list[str]]]:
    """Return (step, one text per series) rows, thinned out to about `MAX_ROWS` steps."""
    rows: dict[float, list[str]] = {}
    for index, series in enumerate(chart.series):
        for point in series.points:
            rows.setdefault(point.x, [""] * len(chart.series))[index] = chart.text(point)
    steps = sorted(rows)
    every = math.ceil(len(steps) / MAX_ROWS)
    kept = steps if every == 1 else sorted({*steps[::every], steps[-1]})
    return [(step, rows[step]) for step in kept]
