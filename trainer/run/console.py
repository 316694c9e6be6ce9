"""Output of the commands: tables and numbers for the terminal, and pages in Markdown."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shared.console import literal, printable
from shared.run_files import RunSummary, TimedMeasurement
from shared.run_stats import Rate

# phase (random, before, after) -> mode (greedy, sampled) -> `EvalResult.summary()`
Summaries = Mapping[str, Mapping[str, TimedMeasurement]]


def number(value: object, form: str = ".2f") -> str:
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
        made.add_row(*literal(*row))
    # rich's own title would wrap at the table's width
    return Group(Text(printable(title), style="italic"), made, "")


def success_table(title: str, results: Summaries) -> RenderableType:
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


_TEMPLATES = Environment(
    loader=PackageLoader("trainer.run"),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_TEMPLATES.filters |= {"percent": percent_number, "rate": rate_text, "seconds": seconds_text}


def markdown(template: str, **values: Any) -> str:
    return _TEMPLATES.get_template(template).render(values)
