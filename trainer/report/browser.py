"""A list of items on the page that can be filtered, of which one is shown at a time.

All items are in the page, however many: their markup is compressed in chunks, of which the page's
script unpacks the one that it shows. Without scripts the first items are lists to open.
"""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

CHUNK = 16  # items compressed together: what showing one of them unpacks
LISTED = 20  # items in a page without scripts


@dataclass(frozen=True)
class Item:
    """One item. `facets` are its values of the browser's filters; `outcomes` those by policy."""

    id: str
    label: str
    facets: Sequence[str]
    markup: str
    outcomes: Sequence[Sequence[str]] = ()


def browser(
    templates: Environment,
    noun: str,
    facets: Sequence[str],
    items: Sequence[Item],
    policies: Sequence[str] = (),
    first: int = 0,
) -> Markup:
    """Return the browser of `items`, with a filter for each of `facets` and for the outcome of a
    policy; empty without items. `first` is shown at the start."""
    if not items:
        return Markup("")
    index = {
        "facets": facets,
        "policies": policies,
        "items": [[one.id, one.label, one.facets, one.outcomes] for one in items],
        "chunk": CHUNK,
        "first": first,
    }
    chunks = []
    for start in range(0, len(items), CHUNK):
        text = json.dumps([one.markup for one in items[start : start + CHUNK]], ensure_ascii=False)
        chunks.append(base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode())
    shown = {"listed": items[:LISTED], "rest": len(items) - LISTED, "first": first}
    template = templates.get_template("browser.html.j2")
    return Markup(template.render(noun=noun, index=index, chunks=chunks, **shown))
