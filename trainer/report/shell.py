"""What all pages share: templates, numbers as text and as small bars. A file requests nothing."""

import base64
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from jinja2 import ChainableUndefined, Environment
from markupsafe import Markup

from shared import pages
from shared.run_stats import MODES
from trainer.config import REWARD_WEIGHTS
from trainer.run.charts import Chart, png
from trainer.run.folder import to_json


def environment() -> Environment:
    """Return the templates with what every page uses."""
    # A run that is under way, or of another version, lacks some of what the template names.
    made = pages.environment("trainer.report", "report.css", "report.js", ChainableUndefined)
    made.filters |= {"secs": seconds_text, "plain": plain, "meter": meter, "picture": picture}
    made.globals |= {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "layers": REWARD_WEIGHTS,
        "modes": MODES,
    }
    return made


def picture(chart: Chart) -> str:
    """Return the chart as the address of an image; the page has its title and its note as text."""
    drawn = png([replace(chart, title="", note="")], dpi=150, inches=(5.6, 3.8))
    return f"data:image/png;base64,{base64.b64encode(drawn).decode()}"


def meter(rate: Mapping[str, Any] | None) -> Markup:
    """Draw a rate as a bar of 100 units with its interval; empty if there is none."""
    if not rate or rate.get("rate") is None:
        return Markup("")
    low, high = rate["ci95"]
    return Markup(
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/>'
        '<rect class="level" width="{:.1f}" height="8"/>'
        '<rect class="interval" x="{:.1f}" y="3" width="{:.1f}" height="2"/></svg>'
    ).format(100 * rate["rate"], 100 * low, max(0.5, 100 * (high - low)))


def seconds_text(value: Any) -> str:
    """Format seconds: 12.3 s, 4 min 5 s, 1 h 12 min."""
    if not isinstance(value, int | float):
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plain(value: Any) -> str:
    """Format a setting's value: lists with commas, None and empty lists as "none"."""
    if isinstance(value, Mapping | bool):
        return to_json(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
