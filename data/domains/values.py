"""Cells from a random stream: draws of one cell, and functions that return a `Maker` of a column's.

They are deterministic and use no transcendental function, so that a stream gives the same cells
on every platform. `null` is the share of NULLs, in [0, 1]. With `unique=True` all cells of a column
differ, so `draw` must have enough different ones. A few per cent of the names of people, cities and
companies are not ASCII.
"""

import datetime as dt
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

from data.domains.spec import Maker, Value
from data.domains.words import LISTS

Draw = Callable[[random.Random], Value]  # (stream) -> one cell

RARE_SHARE = 0.05  # of names and places that come from the list with non-ASCII letters


def column(draw: Draw, *, null: float = 0.0, unique: bool = False) -> Maker:
    """Return a maker that calls `draw` for each cell."""

    def make(rng: random.Random, count: int) -> list[Value]:
        cells: list[Value] = []
        seen: set[Value] = set()
        for _ in range(count):
            if null and rng.random() < null:
                cells.append(None)
                continue
            cell = draw(rng)
            while unique and cell in seen:
                cell = draw(rng)
            seen.add(cell)
            cells.append(cell)
        return cells

    return make


def _mostly(name: str, rng: random.Random) -> str:
    """Draw from the list `name`, now and then from the list `rare_<name>`."""
    return rng.choice(LISTS[f"rare_{name}" if rng.random() < RARE_SHARE else name])


def person(rng: random.Random) -> str:
    """Draw a first and a last name, of about 40,000."""
    return f"{_mostly('first_names', rng)} {_mostly('last_names', rng)}"


def company(rng: random.Random) -> str:
    """Draw a name such as `Harbor Foods` or `Novak & Sons`, of about 4,000."""
    if rng.random() < 0.25:
        return f"{_mostly('last_names', rng)} {rng.choice(LISTS['company_suffixes'])}"
    return f"{rng.choice(LISTS['company_heads'])} {rng.choice(LISTS['company_tails'])}"


def cities(count: int, null: float = 0.0) -> Maker:
    """Return a maker of `count` cities, which the rows share."""

    def make(rng: random.Random, rows: int) -> list[Value]:
        drawn = column(partial(_mostly, "cities"), unique=True)(rng, count)
        return skewed_choice(drawn, null)(rng, rows)

    return make


def skewed_choice(values: Sequence[Value], null: float = 0.0) -> Maker:
    """Return a maker that picks the first of `values` about three times as often as the last."""
    size = len(values)
    weights = [1.0 + 2.0 * (size - rank) / size for rank in range(size)]
    return column(lambda rng: rng.choices(values, weights)[0], null=null)


def integers(lo: int, hi: int, null: float = 0.0, *, skew: bool = False) -> Maker:
    """Return a maker of integers in [lo, hi]; with `skew`, small ones are more frequent."""

    def draw(rng: random.Random) -> int:
        if skew:
            return lo + int((hi - lo + 1) * rng.random() * rng.random())
        return rng.randint(lo, hi)

    return column(draw, null=null)


def reals(lo: float, hi: float, decimals: int, null: float = 0.0, *, skew: bool = False) -> Maker:
    """Return a maker of rounded numbers in [lo, hi]; with `skew`, small ones are more frequent."""

    def draw(rng: random.Random) -> float:
        number = lo + (hi - lo) * rng.random() * rng.random() if skew else rng.uniform(lo, hi)
        return round(number, decimals)

    return column(draw, null=null)


def prices(lo: float, hi: float, null: float = 0.0) -> Maker:
    """Return a maker of shop prices in about [lo, hi], mostly small, ending in .99, .95 or .50."""

    def draw(rng: random.Random) -> float:
        amount = lo + (hi - lo) * rng.random() * rng.random()
        cents = rng.choice((99, 99, 95, 50, 0, rng.randint(1, 98)))
        return round(int(amount) + cents / 100, 2)

    return column(draw, null=null)


def dates(first: dt.date, last: dt.date, null: float = 0.0) -> Maker:
    start, end = first.toordinal(), last.toordinal()
    return column(lambda rng: dt.date.fromordinal(rng.randint(start, end)).isoformat(), null=null)


def email(rng: random.Random) -> str:
    """Draw an address such as `jose.novak17@example.org`, in ASCII."""
    plain = unicodedata.normalize("NFKD", person(rng).translate(str.maketrans("łŁøØ", "lLoO")))
    local = ".".join(re.sub("[^a-z]", "", word) or "x" for word in plain.lower().split())
    number = str(rng.randint(1, 99)) if rng.random() < 0.5 else ""
    return f"{local}{number}@{rng.choice(LISTS['mail_domains'])}"


def codes(prefix: str, digits: int = 5, *, null: float = 0.0) -> Maker:
    """Return a maker of different codes such as `INV-40213` for the prefix `INV-`."""
    top = 10**digits - 1
    return column(lambda rng: f"{prefix}{rng.randint(0, top):0{digits}d}", null=null, unique=True)


def phone(rng: random.Random) -> str:
    """Draw a number such as `555-0142`, which is assigned to nobody."""
    return f"555-{rng.randint(100, 9999):04d}"


def street(rng: random.Random) -> str:
    """Draw an address such as `14 Mill Lane`."""
    number, head = rng.randint(1, 180), rng.choice(LISTS["street_heads"])
    return f"{number} {head} {rng.choice(LISTS['street_tails'])}"
