"""A list of items on the page that can be filtered, of which one is shown at a time.

All items are in the page, however many: their markup is compressed in chunks, of which the page's
script unpacks the one that it shows. Without scripts the first items are lists to open.
"""

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

CHUNK = 16  # items compressed together: what showing one of them unpacks
LISTED_BYTES = 600_000  # of the items in a page without scripts

DETAILS = Markup('<details class="item" id="{}"{}><summary>{}</summary>{}</details>')


@dataclass(frozen=True)
class Item:
    """One item. `facets` are its values of the browser's filters; `outcomes` those by policy."""

    id: str
    label: str
    facets: Sequence[str]
    markup: Markup
    outcomes: Sequence[Sequence[str]] = ()


def browser(
    noun: str,
    facets: Sequence[str],
    items: Sequence[Item],
    policies: Sequence[str] = (),
    first: int = 0,
) -> Markup:
    """Return the browser of `items`, with a filter for each of `facets` and for the outcome of a
    policy. `first` is shown at the start."""
    index = {
        "facets": list(facets),
        "policies": list(policies),
        "items": [[one.id, one.label, list(one.facets), list(one.outcomes)] for one in items],
        "chunk": CHUNK,
        "first": first,
    }
    return Markup(
        '<div class="browser" data-noun="{}">'
        '<script type="application/json" class="index">{}</script>'
        '<script type="application/json" class="chunks">{}</script>'
        "<noscript>{}</noscript></div>"
    ).format(noun, _data(index), _data(_chunks(items)), _listed(items, first))


def _chunks(items: Sequence[Item]) -> list[str]:
    """Return the markup of `CHUNK` items each: JSON, compressed, in base64."""
    texts = (
        json.dumps([one.markup for one in items[start : start + CHUNK]], ensure_ascii=False)
        for start in range(0, len(items), CHUNK)
    )
    return [base64.b64encode(gzip.compress(one.encode(), mtime=0)).decode() for one in texts]


def _data(value: object) -> Markup:
    """Return JSON for a script element, which no text can close."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _listed(items: Sequence[Item], first: int) -> Markup:
    listed: list[Markup] = []
    size = 0
    for number, one in enumerate(items):
        size += len(one.markup.encode())
        if listed and size > LISTED_BYTES:
            rest = Markup("<p>{} more need scripts, which this browser does not run.</p>")
            listed.append(rest.format(len(items) - number))
            break
        opened = Markup(" open") if number == first else ""
        listed.append(DETAILS.format(one.id, opened, one.label, one.markup))
    return Markup("\n").join(listed)
