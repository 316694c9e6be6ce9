"""What the trainer's reports and the server's page share: templates, style sheet, markup.

`environment` needs jinja2, and `markup` pygments: the extras `server` and `trainer` have both.
"""

import base64
import hashlib

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from shared.pages.markup import cut, is_number, number_text, short, signed, sql

FILTERS = {"num": number_text, "signed": signed, "cut": cut, "short": short, "sql": sql}


def environment(
    package: str, style: str, script: str, undefined: type[Undefined] = StrictUndefined
) -> Environment:
    """Return the templates of a package and the shared ones, which escape what they are given.

    `style` and `script` are files of the package. Templates write them into the page and allow them
    by their digests, in a Content-Security-Policy that allows nothing else: a text of an episode
    that got past the escaping could still not run.
    """
    loader = ChoiceLoader([PackageLoader(package), PackageLoader("shared.pages")])
    made = Environment(
        loader=loader, autoescape=True, undefined=undefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= FILTERS
    made.tests["number"] = is_number
    for key, names in (("style", ("base.css", style)), ("script", (script,))):
        text = "".join(loader.get_source(made, name)[0] for name in names)
        made.globals |= {key: Markup(text), f"{key}_hash": digest_of(text)}
    return made


def digest_of(text: str) -> str:
    """Return a script's or a style sheet's digest, as a Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
