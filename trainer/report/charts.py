"""Charts as inline SVG: pure functions from numbers to markup, coloured by the page's style sheet.

A chart is readable in three ways: as a picture, as its description for those who can't see it, and
as a table of its values. Every step has a column that names its values, for pointers and, with the
page's script, for arrow keys.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 300  # user units; the picture scales to its column
# room for tick labels, also in the larger letters of a narrow screen
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 12, 50
MAX_POINTS = 300  # of a curve: a longer one is drawn as means of neighbouring steps
MAX_TABLE_ROWS = 120

Kind = Literal["line", "faint", "dashed", "points", "diamonds"]
Format = Callable[[float], str]


@dataclass(frozen=True)
class Point:
    """A value at a step, with the ends of its interval or range where it has them."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A curve or a set of marks. `colour` is a class of the style sheet: c1, c2, ..."""

    label: str
    points: Sequence[Point]
    colour: str
    kind: Kind = "line"
    band: bool = False  # low and high as an area along the curve, not as whiskers


@dataclass(frozen=True)
class Baseline:
    """A horizontal line."""

    label: str
    y: float
    colour: str = "c0"


@dataclass(frozen=True)
class Chart:
    """One picture over the training steps. `note` says what was smoothed or left out."""

    key: str  # an id of the page
    title: str
    series: Sequence[Series] = ()
    baselines: Sequence[Baseline] = ()
    bounds: tuple[float | None, float | None] = (None, None)  # of the y axis; None: from the values
    form: Format = field(default=lambda value: number(value))
    stacked: bool = False  # the series are parts of a whole, drawn as columns on each other
    note: str = ""

    @property
    def empty(self) -> bool:
        return not any(one.points for one in self.series)


def number(value: float) -> str:
    """Three significant digits: 1,234, 0.25, 3e-4."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        digits, _, exponent = f"{value:.2e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.3g}"


def percent(value: float) -> str:
    """A share as a percentage: 0.7396 -> 74.0 %."""
    return f"{100 * value:.1f} %"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that span [low, high], about `count` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    found: list[float] = []
    while (first + len(found)) * step <= high + step * 1e-9:
        found.append(round((first + len(found)) * step, 12))
    return found


def thinned(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points, each the mean of as many neighbours; its range is that of theirs."""
    if len(points) <= limit:
        return list(points)
    size = math.ceil(len(points) / limit)
    return [_mean(points[start : start + size]) for start in range(0, len(points), size)]


def _mean(points: Sequence[Point]) -> Point:
    lows = [one.low for one in points if one.low is not None]
    highs = [one.high for one in points if one.high is not None]
    return Point(
        x=sum(one.x for one in points) / len(points),
        y=sum(one.y for one in points) / len(points),
        low=min(lows) if lows else None,
        high=max(highs) if highs else None,
    )


@dataclass(frozen=True)
class _Scale:
    x: tuple[float, float]
    y: tuple[float, float]

    def at_x(self, value: float) -> float:
        low, high = self.x
        return LEFT + (WIDTH - LEFT - RIGHT) * ((value - low) / (high - low) if high > low else 0.5)

    def at_y(self, value: float) -> float:
        low, high = self.y
        value = min(max(value, low), high)
        return (
            HEIGHT
            - BOTTOM
            - (HEIGHT - TOP - BOTTOM) * ((value - low) / (high - low) if high > low else 0.5)
        )


def draw(chart: Chart) -> Markup:
    """The chart's `<svg>`; empty where it has no point."""
    if chart.empty:
        return Markup("")
    # of a stack all parts are thinned alike, so that they still stand on each other
    drawn = [(one, thinned(one.points)) for one in chart.series if one.points]
    scale = _scale(chart, drawn)
    body = [*_axes(chart, scale)]
    if chart.stacked:
        body += _columns(drawn, scale)
    else:
        for baseline in chart.baselines:
            body.append(
                _line(
                    LEFT,
                    scale.at_y(baseline.y),
                    WIDTH - RIGHT,
                    scale.at_y(baseline.y),
                    f"base {baseline.colour}",
                )
            )
        for one, points in drawn:
            body += _curve(one, points, scale)
    body += _hits(chart, scale)
    return Markup(
        '<svg viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title {}-desc"><title id="{}-title">{}</title>'
        '<desc id="{}-desc">{}</desc>{}</svg>'
    ).format(
        WIDTH,
        HEIGHT,
        chart.key,
        chart.key,
        chart.key,
        chart.title,
        chart.key,
        description(chart),
        Markup("").join(body),
    )


def _scale(chart: Chart, drawn: Sequence[tuple[Series, Sequence[Point]]]) -> _Scale:
    xs = [point.x for _, points in drawn for point in points]
    if chart.stacked:
        sums: dict[float, float] = {}
        for _, points in drawn:
            for point in points:
                sums[point.x] = sums.get(point.x, 0.0) + point.y
        ys = [0.0, *sums.values()]
        half = (max(xs) - min(xs)) / max(1, len(sums) - 1) / 2 or 0.5
        across = (min(xs) - half, max(xs) + half)
    else:
        ys = [baseline.y for baseline in chart.baselines]
        for _, points in drawn:
            ys += [point.y for point in points]
            ys += [end for point in points for end in (point.low, point.high) if end is not None]
        across = (min(xs), max(xs)) if max(xs) > min(xs) else (min(xs) - 1, max(xs) + 1)
    low, high = min(ys), max(ys)
    room = 0.04 * (high - low) or abs(high) * 0.1 or 1.0
    floor, roof = chart.bounds
    return _Scale(
        across,
        (
            low - room * (low != 0) if floor is None else floor,
            high + room if roof is None else roof,
        ),
    )


def _axes(chart: Chart, scale: _Scale) -> Iterable[Markup]:
    for value in ticks(*scale.y):
        y = scale.at_y(value)
        yield _line(LEFT, y, WIDTH - RIGHT, y, "grid")
        yield _text(LEFT - 6, y, chart.form(value).replace(".0 %", " %"), "tick end")
    for value in ticks(*scale.x):
        if value == round(value):
            yield _text(scale.at_x(value), HEIGHT - BOTTOM + 8, f"{value:,.0f}", "tick below")
    yield _line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "axis")
    yield _text(WIDTH - RIGHT, HEIGHT - 5, "GRPO step", "tick name")


def _curve(one: Series, points: Sequence[Point], scale: _Scale) -> Iterable[Markup]:
    ranged = [point for point in points if point.low is not None and point.high is not None]
    if one.band and ranged:
        ends = [(point.x, point.high) for point in ranged] + [
            (point.x, point.low) for point in reversed(ranged)
        ]
        shape = " ".join(
            f"{scale.at_x(x):.1f},{scale.at_y(y):.1f}" for x, y in ends if y is not None
        )
        yield Markup('<polygon class="band {}" points="{}"/>').format(one.colour, shape)
    elif ranged:
        for point in ranged:
            x, low, high = (
                scale.at_x(point.x),
                scale.at_y(point.low or 0.0),
                scale.at_y(point.high or 0.0),
            )
            shape = (
                f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
            )
            yield Markup('<path class="whisker {}" d="{}"/>').format(one.colour, shape)
    if one.kind in ("line", "faint", "dashed") and len(points) > 1:
        shape = " ".join(f"{scale.at_x(point.x):.1f},{scale.at_y(point.y):.1f}" for point in points)
        yield Markup('<polyline class="{} {}" points="{}"/>').format(one.kind, one.colour, shape)
    if one.kind in ("points", "dashed", "diamonds") or len(points) == 1:
        for point in points:
            x, y = scale.at_x(point.x), scale.at_y(point.y)
            if one.kind == "diamonds":
                yield Markup('<path class="mark {}" d="M{:.1f} {:.1f}l6 6-6 6-6-6z"/>').format(
                    one.colour, x, y - 6
                )
            else:
                yield Markup('<circle class="mark {}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(
                    one.colour, x, y
                )


def _columns(drawn: Sequence[tuple[Series, Sequence[Point]]], scale: _Scale) -> Iterable[Markup]:
    places = {point.x for _, points in drawn for point in points}
    wide = max(1.0, (WIDTH - LEFT - RIGHT) / max(1, len(places)) * 0.85)
    below = dict.fromkeys(places, 0.0)
    for one, points in drawn:
        for point in points:
            bottom, top = scale.at_y(below[point.x]), scale.at_y(below[point.x] + point.y)
            below[point.x] += point.y
            yield Markup(
                '<rect class="fill {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
            ).format(one.colour, scale.at_x(point.x) - wide / 2, top, wide, max(0.0, bottom - top))


def _hits(chart: Chart, scale: _Scale) -> Iterable[Markup]:
    """A column a step, unseen, whose title names the values there."""
    rows = values(chart, MAX_POINTS)
    xs = [scale.at_x(x) for x, _ in rows]
    for index, (x, cells) in enumerate(rows):
        left = (xs[index - 1] + xs[index]) / 2 if index else LEFT
        right = (xs[index] + xs[index + 1]) / 2 if index + 1 < len(xs) else WIDTH - RIGHT
        said = "; ".join(
            f"{one.label}: {cell}" for one, cell in zip(chart.series, cells, strict=True) if cell
        )
        yield Markup(
            '<rect class="hit" x="{:.1f}" y="{}" width="{:.1f}" height="{}" data-x="{:.1f}"><title>{}</title></rect>'
        ).format(
            left,
            TOP,
            max(0.5, right - left),
            HEIGHT - TOP - BOTTOM,
            xs[index],
            f"step {x:,.0f}: {said}",
        )


def values(chart: Chart, limit: int = MAX_TABLE_ROWS) -> list[tuple[float, list[str]]]:
    """(step, a text a series) of the chart's points; steps evenly left out where there are more
    than `limit`."""
    found: dict[float, list[str]] = {}
    for index, one in enumerate(chart.series):
        for point in one.points:
            cells = found.setdefault(point.x, [""] * len(chart.series))
            cells[index] = said(point, chart.form)
    steps = sorted(found)
    # steps that only some series have are rare points, such as evaluations: they stay
    every = math.ceil(len(steps) / limit)
    kept = steps if every == 1 else sorted({*steps[::every], steps[-1]})
    return [(step, found[step]) for step in kept]


def said(point: Point, form: Format) -> str:
    if point.low is None or point.high is None:
        return form(point.y)
    return f"{form(point.y)} [{form(point.low)}, {form(point.high)}]"


def description(chart: Chart) -> str:
    """The chart in words: each curve's first, last, least and greatest value."""
    told = []
    for one in chart.series:
        if not one.points:
            continue
        ys = [point.y for point in one.points]
        first, last = one.points[0], one.points[-1]
        if len(ys) == 1:
            told.append(f"{one.label}: {said(first, chart.form)} at step {first.x:,.0f}")
        else:
            told.append(
                f"{one.label}: from {said(first, chart.form)} at step {first.x:,.0f} "
                f"to {said(last, chart.form)} at step {last.x:,.0f}, "
                f"least {chart.form(min(ys))}, greatest {chart.form(max(ys))}"
            )
    told += [f"{one.label}: {chart.form(one.y)} (line)" for one in chart.baselines]
    return ". ".join(told) + "."


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        kind, x1, y1, x2, y2
    )


def _text(x: float, y: float, text: str, kind: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        kind, x, y, escape(text)
    )
