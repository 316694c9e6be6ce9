"""What all pages share: templates, style sheet, script.

A file requests nothing, and its Content-Security-Policy allows no source but its own style sheet
and script, by their digests. A text of an episode that got past the escaping could still not run.
"""

import base64
import hashlib
import time
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from shared.run_stats import MODES
from trainer.config import REWARD_WEIGHTS
from trainer.report import formats, svg
from trainer.report.ledger import LAYERS
from trainer.report.markup import cut, is_number, short, sql
from trainer.run.folder import to_json

FILTERS = {
    "num": formats.number_text,
    "signed": formats.signed,
    "secs": formats.seconds_text,
    "plain": formats.plain,
    "meter": formats.meter,
    "advantage_bar": formats.advantage_bar,
    "cut": cut,
    "short": short,
    "json": to_json,
    "sql": sql,
    "draw": svg.draw,
    "values": svg.values,
}


def environment() -> Environment:
    """Return the templates with what every page uses."""
    loader = PackageLoader("trainer.report")
    # A run that is under way, or of another version, lacks some of what the template names.
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.tests["number"] = is_number
    style = loader.get_source(made, "report.css")[0]
    script = loader.get_source(made, "report.js")[0]
    shared: dict[str, Any] = {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "style": Markup(style),  # ours: no text of a run is in it
        "script": Markup(script),
        "style_hash": _csp_hash(style),
        "script_hash": _csp_hash(script),
        "layers": dict(zip(LAYERS, REWARD_WEIGHTS, strict=True)),
        "modes": MODES,
    }
    made.globals |= shared
    return made


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
