"""Terminal output of the commands: tables, numbers, and progress bars (in a log: lines)."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from shared.run_files import RunSummary, TimedMeasurement
from shared.run_stats import Rate

LINE_EVERY_S = 15.0  # between two lines of one bar in a log
REFRESH_HZ = 4.0  # redraws of a terminal

# phase (random, before, after) -> mode (greedy, sampled) -> `EvalResult.summary()`
Summaries = Mapping[str, Mapping[str, TimedMeasurement]]


class Bar:
    """A progress bar. A log gets a line every `LINE_EVERY_S` seconds and at the end instead."""

    def __init__(self, console: Console, title: str, total: int | None) -> None:
        self._console, self._title, self._total = console, title, total
        self._last_line = time.monotonic()
        self.progress: Progress | None = None
        # rich treats a notebook as a terminal, but needs ipywidgets to redraw anything there
        if console.is_terminal and not console.is_jupyter:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
                refresh_per_second=REFRESH_HZ,
            )
            self._task = self.progress.add_task(title, total=total, note="")

    def to(self, done: int, note: str = "", total: int | None = None) -> None:
        """Show that `done` of the total are done, and a note beside them."""
        self._total = total or self._total
        if self.progress is not None:
            self.progress.update(self._task, completed=done, note=note, total=self._total)
        elif done == self._total or time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            line = f"{self._title}: {done}/{self._total or '?'} {note}".rstrip()
            self._console.print(line, highlight=False)


@contextmanager
def bar(console: Console, title: str, total: int | None = None) -> Iterator[Bar]:
    """Show a progress bar while the block runs."""
    made = Bar(console, title, total)
    with made.progress or nullcontext():
        yield made


def number(value: object, form: str = ".2f") -> str:
    """Format a number; "-" for anything else."""
    return format(value, form) if isinstance(value, (int, float)) else "-"


def rate_text(rate: Rate | None) -> str:
    """Format a rate in percent: "45.0 [40, 50]", the ends of the interval rounded outwards."""
    if not rate or rate["rate"] is None:
        return "-"
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{math.floor(100 * low)}, {math.ceil(100 * high)}]"


def percent_number(share: float | None) -> str:
    return number(None if share is None else 100 * share, ".1f")


def seconds_text(value: object) -> str:
    """Format seconds: 12.3 s, 4 min 5 s, 1 h 12 min; "–" for anything else."""
    if not isinstance(value, int | float):
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """Return a table under its title; all columns but the first are aligned to the right."""
    # two columns apart, so that the widest table fits 80 columns
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    made.add_column(headings[0], no_wrap=True)
    for heading in headings[1:]:
        made.add_column(heading, justify="right", min_width=max(map(len, heading.split())))
    for row in rows:
        made.add_row(*row)
    # rich's own title would wrap at the table's width
    return Group(Text(title, style="italic"), made, "")


def success_table(title: str, results: Summaries) -> RenderableType:
    """Return success in percent with 95 % intervals: one row per policy, in 80 columns."""
    rows = [
        (
            f"{phase} {mode}",
            *(rate_text(rate) for rate in (one["overall"], one["seen"], one["unseen"])),
            number(one["mean_reward"]),
        )
        for phase, modes in results.items()
        for mode, one in modes.items()
    ]
    return table(title, ("policy", "overall", "seen", "unseen", "reward"), rows)


def behaviour_table(title: str, results: Summaries) -> RenderableType:
    """Return shares in percent and means per episode: one row per policy, in 80 columns."""
    headings = ("policy", "answered %", "right of these %", "DESCRIBE first %", "steps", "repeats")
    rows = [
        (
            f"{phase} {mode}",
            *map(
                percent_number,
                (does["answered"], does["accuracy_when_answered"], does["describe_first"]),
            ),
            *map(number, (does["steps"], does["repeats"], does["errors"])),
        )
        for phase, modes in results.items()
        for mode, one in modes.items()
        if (does := one["behaviour"]["overall"])
    ]
    return table(title, (*headings, "errors"), rows)


def limit_lines(summary: RunSummary) -> list[str]:
    """Return how many episodes of a run a limit shortened or ended, for those that did."""
    limits = {
        "episodes_truncated": "outgrew the context window and continued with their last steps "
        "only; later steps were not trained on (max_context_tokens)",
        "context_overflows": "ended because the context window was full (max_context_tokens)",
        "episodes_too_large": "ended because their actions reached the server's limit on bytes "
        "(SQLENV_MAX_EPISODE_BYTES)",
    }
    return [
        f"{count} of {summary['episodes']} episodes {what}; docs/train.md"
        for name, what in limits.items()
        if (count := summary.get(name))
    ]
