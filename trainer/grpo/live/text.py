"""The live view in a terminal's characters: charts of Braille dots, 2 x 4 a character, and the
latest episode."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trainer.grpo.live.figures import reward_limits
from trainer.grpo.live.scene import (
    BAND,
    INTERVAL,
    SMOOTHING,
    Curve,
    Level,
    Scene,
    Trace,
    job_curve,
    level_text,
    reward_curves,
    reward_levels,
    success_curves,
    success_levels,
    trace_heading,
    trace_verdict,
)

# bit of the dot in column 0, 1 and row 0 to 3 (Unicode)
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
STYLES = {"reward": "bright_blue", "train": "bright_blue", "eval": "bright_red", "job": "magenta"}
LEVEL_STYLES = {"random": "bright_black", "untrained": "yellow"}
ASCII = {"│": "|", "└": "+", "─": "-", "━": "=", "→": ">", "⏎": "/", "…": "."}
# of dots, in a terminal of HIGH lines or more, and in a lower one
CHART_ROWS, LOW_CHART_ROWS = 8, 5
HIGH = 30
FRAME_ROWS = 2 + 2 + 5  # around a chart's dots: the panel's border, title and axis, legend
LEAST_TRACE_ROWS = 4
BAR_ROWS = 2  # what the progress bar below takes, and one spare, so that nothing scrolls


@dataclass(frozen=True)
class Drawn:
    """A curve and how it looks."""

    curve: Curve
    style: str


class Canvas:
    """Dots of `columns` x `rows` characters. Where several things meet in a character, the one
    drawn last is shown."""

    def __init__(self, columns: int, rows: int, *, ascii_only: bool = False) -> None:
        self.columns, self.rows, self._ascii = columns, rows, ascii_only
        self._cells: dict[tuple[int, int], tuple[int, int, str]] = {}  # -> layer, dots, style
        self._layer = 0

    @property
    def width(self) -> int:
        return 2 * self.columns

    @property
    def height(self) -> int:
        return 4 * self.rows

    def layer(self) -> None:
        """What is drawn from here on covers what was."""
        self._layer += 1

    def dot(self, x: int, y: int, style: str) -> None:
        """Set a dot; `y` counts from the bottom. Outside of the canvas nothing happens."""
        if not (0 <= x < self.width and 0 <= y < self.height):
            return
        cell, row = (x // 2, self.rows - 1 - y // 4), 3 - y % 4
        layer, dots, _ = self._cells.get(cell, (self._layer, 0, style))
        bit = DOTS[x % 2][row]
        self._cells[cell] = (self._layer, bit if layer < self._layer else dots | bit, style)

    def lines(self) -> Iterator[Text]:
        """A line of text a row, each `columns` characters wide."""
        for row in range(self.rows):
            text = Text(no_wrap=True)
            for column in range(self.columns):
                _, dots, style = self._cells.get((column, row), (0, 0, ""))
                mark = ("*" if dots.bit_count() > 2 else ".") if self._ascii else chr(0x2800 + dots)
                text.append(mark if dots else " ", style)
            yield text


def at(steps: Sequence[float], values: Sequence[float], step: float) -> float:
    """The value at `step` on straight lines between the points; beyond the ends, the end's."""
    if step <= steps[0]:
        return values[0]
    if step >= steps[-1]:
        return values[-1]
    right = bisect.bisect_left(steps, step)
    share = (step - steps[right - 1]) / (steps[right] - steps[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


@dataclass(frozen=True)
class Plane:
    """Where steps 0 to `steps` and values `low` to `high` lie on a canvas."""

    canvas: Canvas
    steps: int
    low: float
    high: float

    def x(self, step: float) -> int:
        return round(step / max(1, self.steps) * (self.canvas.width - 1))

    def y(self, value: float) -> int:
        return round((value - self.low) / (self.high - self.low) * (self.canvas.height - 1))

    def columns(self, steps: Sequence[float]) -> Iterator[tuple[int, float]]:
        """Each column of dots from the first step to the last, and the step that it stands for."""
        for x in range(self.x(steps[0]), self.x(steps[-1]) + 1) if steps else ():
            yield x, x / (self.canvas.width - 1) * self.steps

    def band(self, curve: Curve, style: str) -> None:
        """Shade the interval: every second dot of every second column."""
        where, lows, highs = ([point[index] for point in curve.band] for index in range(3))
        for x, step in self.columns(where):
            bottom, top = max(0, self.y(at(where, lows, step))), self.y(at(where, highs, step))
            for y in range(bottom, min(self.canvas.height - 1, top) + 1) if x % 2 == 0 else ():
                if (y + x // 2) % 2 == 0:
                    self.canvas.dot(x, y, f"dim {style}")

    def level(self, value: float, style: str) -> None:
        for x in range(0, self.canvas.width, 4):
            self.canvas.dot(x, self.y(value), style)

    def line(self, curve: Curve, style: str) -> None:
        before: int | None = None
        for x, step in self.columns(curve.steps):
            y = self.y(at(curve.steps, curve.values, step))
            start = y if before is None else before
            for between in range(min(start, y), max(start, y) + 1):
                self.canvas.dot(x, between, style)
            before = y


def chart(drawn: Sequence[Drawn], levels: Sequence[Level], plane: Plane) -> list[Text]:
    """The lines of a chart: bands, over them levels, over them curves."""
    for one in drawn:
        plane.band(one.curve, one.style)
    plane.canvas.layer()
    for level in levels:
        plane.level(level.value, LEVEL_STYLES[level.name])
    plane.canvas.layer()
    for one in drawn:
        plane.line(one.curve, one.style)
    return list(plane.canvas.lines())


def framed(
    title: str,
    lines: Sequence[Text],
    labels: tuple[str, str],
    steps: int,
    legend: Sequence[tuple[str, str]],
) -> Group:
    """A chart's lines with its title, the axes' ends and one line of legend an entry, (text,
    style)."""
    left = max(map(len, labels))
    shown = [Text(title, style="bold", no_wrap=True, overflow="ellipsis")]
    for number, line in enumerate(lines):
        label = labels[0] if number == 0 else labels[1] if number == len(lines) - 1 else ""
        shown.append(Text.assemble((f"{label:>{left}} │", "dim"), line, no_wrap=True))
    width = max((len(line) for line in lines), default=0)
    shown.append(
        Text(f"{'':{left}} └0{f'step {steps}':─>{max(0, width - 1)}}", style="dim", no_wrap=True)
    )
    for text, style in legend:
        shown.append(
            Text.assemble((f"{'':{left}}  ━ ", style), text, no_wrap=True, overflow="ellipsis")
        )
    return Group(*shown)


def reward_chart(scene: Scene, columns: int, rows: int, *, ascii_only: bool = False) -> Group:
    raw, smooth = reward_curves(scene)
    low, high = reward_limits(scene)
    levels = reward_levels(scene)
    labels = (f"{high:.2f}", f"{low:.2f}")
    room = columns - max(map(len, labels)) - 2
    plane = Plane(Canvas(room, rows, ascii_only=ascii_only), scene.steps, low, high)
    lines = chart([Drawn(smooth, STYLES["reward"])], levels, plane)
    latest = f"now {smooth.values[-1]:.2f}, {BAND}" if raw.values else "nothing logged yet"
    legend = [(latest, STYLES["reward"]), *_level_legend(levels, ".2f")]
    return framed(f"Reward: {SMOOTHING}", lines, labels, scene.steps, legend)


def success_chart(scene: Scene, columns: int, rows: int, *, ascii_only: bool = False) -> Group:
    levels, found = success_levels(scene), success_curves(scene)
    drawn = [Drawn(found[split], STYLES[split]) for split in ("train", "eval")]
    if (curve := job_curve(scene)) is not None:
        drawn.insert(0, Drawn(curve, STYLES["job"]))
    plane = Plane(Canvas(columns - 6, rows, ascii_only=ascii_only), scene.steps, -0.03, 1.03)
    lines = chart(drawn, levels, plane)
    legend = [
        (
            f"{one.curve.values[-1]:.0%} {one.curve.label}"
            if one.curve.values
            else one.curve.label,
            one.style,
        )
        for one in drawn
    ]
    title = f"Success ({INTERVAL})"
    return framed(
        title, lines, ("100%", "0%"), scene.steps, [*legend, *_level_legend(levels, ".1%")]
    )


def _level_legend(levels: Sequence[Level], form: str) -> list[tuple[str, str]]:
    return [(f"{level_text(level, form)}, eval set", LEVEL_STYLES[level.name]) for level in levels]


def trace_lines(trace: Trace, columns: int, rows: int) -> list[Text]:
    """The episode in `rows` lines at most, each cut at `columns`; what doesn't fit is counted."""
    lines = [Text(trace.question, style="italic", no_wrap=True, overflow="ellipsis")]
    for number, turn in enumerate(trace.episode.turns, start=1):
        action, answer = _one_line(turn.action), _one_line(turn.observation)
        lines.append(
            Text.assemble(
                (f"{number}. ", "dim"), (action, "bold"), no_wrap=True, overflow="ellipsis"
            )
        )
        if answer:
            lines.append(Text.assemble(("   → ", "dim"), answer, no_wrap=True, overflow="ellipsis"))
    style = "green" if trace.episode.correct else "red"
    end = Text(trace_verdict(trace), style=style, no_wrap=True, overflow="ellipsis")
    if len(lines) >= rows:
        left_out = len(lines) - (rows - 2)
        lines = [*lines[: rows - 2], Text(f"   ... {left_out} more lines", style="dim")]
    for line in (*lines, end):
        line.truncate(columns, overflow="ellipsis")
    return [*lines, end]


def _one_line(text: str) -> str:
    return " ⏎ ".join(filter(None, text.splitlines()))


def to_ascii(text: str) -> str:
    """`text` as a terminal without Unicode can show it, as wide as before."""
    return "".join(one if one.isascii() else ASCII.get(one, "?" * cell_len(one)) for one in text)


class Dashboard:
    """A scene at the terminal's size, rendered once a scene and size: the bar below redraws several
    times a second."""

    def __init__(self) -> None:
        self._scene = Scene()
        self._rendered: tuple[tuple[int, int], list[list[Segment]]] | None = None

    def show(self, scene: Scene) -> None:
        self._scene, self._rendered = scene, None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        size, kept = (console.width, console.height), self._rendered
        if kept is None or kept[0] != size:
            shown = self._layout(*size, ascii_only=options.ascii_only)
            # no line but the last breaks: what is too high for the terminal would scroll at every
            # redraw
            lines = console.render_lines(shown, options.update(width=size[0], height=None))[
                : max(0, size[1] - BAR_ROWS)
            ]
            if options.ascii_only:
                lines = [[Segment(to_ascii(one.text), one.style) for one in line] for line in lines]
            kept = self._rendered = (size, lines)
        for line in kept[1]:
            yield from line
            yield Segment.line()

    def _layout(self, width: int, height: int, *, ascii_only: bool) -> RenderableType:
        scene, half = self._scene, (width - 6) // 2
        rows = CHART_ROWS if height >= HIGH else LOW_CHART_ROWS
        charts = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(2):
            charts.add_column(width=half, no_wrap=True)
        charts.add_row(
            reward_chart(scene, half, rows, ascii_only=ascii_only),
            success_chart(scene, half, rows, ascii_only=ascii_only),
        )
        parts: list[RenderableType] = [
            Panel(charts, title=Text(f"{scene.title}: step {scene.step} of {scene.steps}"))
        ]
        room = height - BAR_ROWS - (rows + FRAME_ROWS) - 2
        if scene.traces and room >= LEAST_TRACE_ROWS:
            trace = scene.traces[-1]
            lines = trace_lines(trace, width - 4, room)
            parts.append(Panel(Group(*lines), title=Text(trace_heading(trace)), title_align="left"))
        return Group(*parts)
