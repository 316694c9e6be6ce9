"""What all pages share: templates, style sheet, script. A file requests nothing."""

import time
from typing import Any

from jinja2 import ChainableUndefined, Environment

from shared import pages
from shared.run_stats import MODES
from trainer.config import REWARD_WEIGHTS
from trainer.report import formats, svg
from trainer.run.folder import to_json

FILTERS = {
    "secs": formats.seconds_text,
    "plain": formats.plain,
    "meter": formats.meter,
    "advantage_bar": formats.advantage_bar,
    "json": to_json,
    "draw": svg.draw,
    "values": svg.values,
}


def environment() -> Environment:
    """Return the templates with what every page uses."""
    # A run that is under way, or of another version, lacks some of what the template names.
    made = pages.environment("trainer.report", "report.css", "report.js", ChainableUndefined)
    made.filters |= FILTERS
    shared: dict[str, Any] = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "layers": REWARD_WEIGHTS,
        "modes": MODES,
    }
    made.globals |= shared
    return made
