"""What a run shows while it works and at its end: bars in a terminal, a line now and then
elsewhere, one table."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

LINE_EVERY_S = 15.0  # between two lines of the same bar in a log
REFRESH_HZ = 4.0  # of what moves in a terminal; a live view above the bar is sent whole each time


class _Stacked(Progress):
    """A progress bar with something above it, drawn as one, so that neither overwrites the other."""

    above: RenderableType | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.above is not None:
            yield self.above
        yield from super().get_renderables()


class Bar:
    """One bar. `to(done, note)` moves it; a log gets a line every `LINE_EVERY_S` seconds and at the
    end."""

    def __init__(self, console: Console, title: str, total: int | None) -> None:
        self._console, self._title, self._total = console, title, total
        self._said = time.monotonic()
        self._progress: _Stacked | None = None
        # rich takes a notebook for a terminal, but needs ipywidgets to move anything there
        if console.is_terminal and not console.is_jupyter:
            self._progress = _Stacked(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=console,
                refresh_per_second=REFRESH_HZ,
            )
            self._task = self._progress.add_task(title, total=total, note="")
            self._progress.start()

    @property
    def moves(self) -> bool:
        """Whether it is drawn in place, and so may have something above it."""
        return self._progress is not None

    def above(self, shown: RenderableType) -> None:
        """Show that above the bar, from the next redraw on."""
        if self._progress is not None:
            self._progress.above = shown

    def to(self, done: int, note: str = "", total: int | None = None) -> None:
        self._total = total or self._total
        if self._progress is not None:
            self._progress.update(self._task, completed=done, note=note, total=self._total)
        elif done == self._total or time.monotonic() - self._said >= LINE_EVERY_S:
            self._said = time.monotonic()
            self._console.print(
                f"{self._title}: {done}/{self._total or '?'} {note}".rstrip(), highlight=False
            )

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


@contextmanager
def bar(console: Console, title: str, total: int | None = None) -> Iterator[Bar]:
    """A bar that is gone from the screen's moving part when the block ends, however it ends."""
    shown = Bar(console, title, total)
    try:
        yield shown
    finally:
        shown.stop()


def number(value: Any, form: str = ".2f") -> str:
    """A number as text; "-" where there is none."""
    return format(value, form) if isinstance(value, (int, float)) else "-"


def counted(number: int, of: str) -> str:
    """A count with its noun: "1 step", "2 steps"."""
    return f"{number:,} {of}" + ("" if number == 1 else "s")


def rate_text(rate: Mapping[str, Any] | None) -> str:
    """`{rate, n, ci95}` in percent: "45.0 [40, 50]"; the interval's ends rounded outwards."""
    if not rate or rate["rate"] is None:
        return "-"
    low, high = rate["ci95"]
    return f"{100 * rate['rate']:.1f} [{math.floor(100 * low)}, {math.ceil(100 * high)}]"


def success_table(title: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """Rows are policies, columns overall, seen and unseen: success in percent with its 95 %
    interval.

    `results` is phase -> mode -> `EvalResult.summary()`. It fits 80 columns.
    """
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    table.add_column("policy", no_wrap=True)
    for heading in ("overall", "seen", "unseen", "reward"):
        table.add_column(heading, justify="right", no_wrap=True)
    for phase, modes in results.items():
        for mode, rates in modes.items():
            parts = (rate_text(rates[part]) for part in ("overall", "seen", "unseen"))
            table.add_row(f"{phase} {mode}", *parts, number(rates.get("mean_reward")))
    return table


def behaviour_table(title: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """Rows are policies, columns what they do on the whole eval set: shares in percent, means an
    episode.

    `results` is phase -> mode -> `EvalResult.summary()`. It fits 80 columns.
    """
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    table.add_column("policy", no_wrap=True)
    for heading in (
        "answered %",
        "right of these %",
        "DESCRIBE first %",
        "steps",
        "repeats",
        "errors",
    ):
        table.add_column(heading, justify="right", min_width=len(max(heading.split(), key=len)))
    for phase, modes in results.items():
        for mode, result in modes.items():
            found = result["behaviour"]["overall"]
            shares = (
                found[name] for name in ("answered", "accuracy_when_answered", "describe_first")
            )
            percents = (number(None if share is None else 100 * share, ".1f") for share in shares)
            means = (number(found[name]) for name in ("steps", "repeats", "errors"))
            table.add_row(f"{phase} {mode}", *percents, *means)
    return table


def cost_lines(cost: Mapping[str, Any]) -> list[str]:
    """What training cost, in two lines. `cost` is the object of summary.json."""
    targets = list(next(iter(cost["seconds_to"].values())))
    reached = [
        f"{float(target):.0%} {mode} {_after(modes[target])}"
        for target in targets
        for mode, modes in cost["seconds_to"].items()
    ]
    step = {name: number(value) for name, value in cost["step"].items()}
    split = (
        f"a step {step['train_s']} s: generate {step['generate_s']}, env wait {step['env_wait_s']}, "
        f"other rollout {step['other_rollout_s']}, update {step['update_s']}; evaluation {step['evaluation_s']} "
        f"on top; CPU-seconds an episode: trainer {number(cost['cpu_s_per_episode'], '.3f')}, "
        f"server {number(cost['server_cpu_s_per_episode'], '.3f')}"
    )
    return [
        f"success, in {number(cost['train_s'], '.0f')} s of training: {', '.join(reached)}",
        split,
    ]


def truncation_line(summary: Mapping[str, Any]) -> str | None:
    """How many episodes of a run outgrew the context window; None where none did."""
    cut, ended = summary["episodes_truncated"], summary["context_overflows"]
    if not cut and not ended:
        return None
    return (
        f"{cut} of {summary['episodes']} episodes outgrew the context window and went on with their last steps; "
        f"what followed was not trained on; {ended} ended for want of room (max_context_tokens; docs/failures.md)"
    )


def _after(seconds: float | None) -> str:
    return "never" if seconds is None else f"after {seconds:.0f} s"
