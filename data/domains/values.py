"""Cell makers: functions that return a `Maker`, which draws a whole column from a random stream.

Every maker is deterministic in its stream and uses no transcendental function, so that the same
stream gives the same cells on every platform. `null` is the share of NULLs, in [0, 1].
`unique=True` makes all cells of a column differ; a maker that can't produce enough different cells
raises `ValueError` saying how many it found. A few per cent of the names of people, cities and
companies are not ASCII.
"""

import datetime as dt
import random
import unicodedata
from collections.abc import Callable, Sequence

from data.domains.lexicon import LISTS
from data.domains.spec import Maker, Value

Draw = Callable[[random.Random], Value]  # (stream) -> one cell

# of names, places and companies that are drawn from the list with non-ASCII letters
RARE_SHARE = 0.05
UNIQUE_ATTEMPTS = 200  # draws for one cell before a column that must be unique gives up


def column(draw: Draw, *, null: float = 0.0, unique: bool = False) -> Maker:
    """The maker that calls `draw` for each cell."""

    def make(rng: random.Random, count: int) -> list[Value]:
        cells: list[Value] = []
        seen: set[Value] = set()
        for _ in range(count):
            if null and rng.random() < null:
                cells.append(None)
                continue
            cell = draw(rng)
            attempts = 1
            while unique and cell in seen:
                if attempts == UNIQUE_ATTEMPTS:
                    raise ValueError(
                        f"a unique column ran dry after {len(seen)} cells of {count}: give it more words"
                    )
                cell, attempts = draw(rng), attempts + 1
            seen.add(cell)
            cells.append(cell)
        return cells

    return make


def _mostly(common: Sequence[str], rare: Sequence[str]) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(rare) if rng.random() < RARE_SHARE else rng.choice(common)


_first = _mostly(LISTS["first_names"], LISTS["rare_first_names"])
_last = _mostly(LISTS["last_names"], LISTS["rare_last_names"])
_city = _mostly(LISTS["cities"], LISTS["rare_cities"])
_country = _mostly(LISTS["countries"], LISTS["rare_countries"])


def _person(rng: random.Random) -> str:
    return f"{_first(rng)} {_last(rng)}"


def first_names(*, null: float = 0.0, unique: bool = False) -> Maker:
    return column(_first, null=null, unique=unique)


def last_names(*, null: float = 0.0, unique: bool = False) -> Maker:
    return column(_last, null=null, unique=unique)


def person_names(*, null: float = 0.0, unique: bool = False) -> Maker:
    """First and last name, about 40,000 different ones."""
    return column(_person, null=null, unique=unique)


def company_names(*, null: float = 0.0, unique: bool = False) -> Maker:
    """Names such as `Harbor Foods` and `Novak & Sons`, about 4,000 different ones."""

    def draw(rng: random.Random) -> str:
        if rng.random() < 0.25:
            return f"{_last(rng)} {rng.choice(LISTS['company_suffixes'])}"
        return f"{rng.choice(LISTS['company_heads'])} {rng.choice(LISTS['company_tails'])}"

    return column(draw, null=null, unique=unique)


def cities(count: int | None = None, *, null: float = 0.0, unique: bool = False) -> Maker:
    """Cities. `count` limits a column to that many of them, so that rows share them."""
    return _places(_city, count, null, unique)


def countries(count: int | None = None, *, null: float = 0.0, unique: bool = False) -> Maker:
    """Countries. `count` limits a column to that many of them."""
    return _places(_country, count, null, unique)


def _places(draw: Draw, count: int | None, null: float, unique: bool) -> Maker:
    if count is None:
        return column(draw, null=null, unique=unique)
    few = column(draw, unique=True)

    def make(rng: random.Random, rows: int) -> list[Value]:
        return skewed_choice(few(rng, count), null=null)(rng, rows)

    return make


def choice(
    values: Sequence[Value], weights: Sequence[float] | None = None, null: float = 0.0
) -> Maker:
    """One of `values`, with equal weights unless given."""
    pool, share = list(values), None if weights is None else list(weights)
    if share is not None and len(share) != len(pool):
        raise ValueError(f"{len(pool)} values but {len(share)} weights")
    return column(lambda rng: rng.choices(pool, share)[0], null=null)


def skewed_choice(values: Sequence[Value], null: float = 0.0) -> Maker:
    """One of `values`, the first about three times as often as the last."""
    size = len(values)
    return choice(values, [1.0 + 2.0 * (size - rank) / size for rank in range(size)], null)


def distinct(values: Sequence[Value]) -> Maker:
    """`values` in a random order, each at most once."""

    def make(rng: random.Random, count: int) -> list[Value]:
        if count > len(values):
            raise ValueError(f"{count} different cells wanted of {len(values)} values")
        return rng.sample(list(values), count)

    return make


def integers(
    lo: int, hi: int, null: float = 0.0, *, unique: bool = False, skew: bool = False
) -> Maker:
    """Whole numbers in [lo, hi]; with `skew`, small ones are commoner."""

    def draw(rng: random.Random) -> int:
        return (
            lo + int((hi - lo + 1) * rng.random() * rng.random()) if skew else rng.randint(lo, hi)
        )

    return column(draw, null=null, unique=unique)


def reals(
    lo: float, hi: float, decimals: int = 2, null: float = 0.0, *, unique: bool = False
) -> Maker:
    """Numbers in [lo, hi] rounded to `decimals`; small ones are commoner, as with sums of money and
    weights."""

    def draw(rng: random.Random) -> float:
        return round(lo + (hi - lo) * rng.random() * rng.random(), decimals)

    return column(draw, null=null, unique=unique)


def even_reals(
    lo: float, hi: float, decimals: int = 2, null: float = 0.0, *, unique: bool = False
) -> Maker:
    """Numbers spread evenly over [lo, hi], as with ratings and temperatures."""
    return column(lambda rng: round(rng.uniform(lo, hi), decimals), null=null, unique=unique)


def prices(lo: float, hi: float, null: float = 0.0) -> Maker:
    """Shop prices in about [lo, hi]: skewed to small ones, mostly ending in .99, .95, .50 or .00."""

    def draw(rng: random.Random) -> float:
        amount = lo + (hi - lo) * rng.random() * rng.random()
        cents = rng.choice((99, 99, 95, 50, 0, rng.randint(1, 98)))
        return round(int(amount) + cents / 100, 2)

    return column(draw, null=null)


def dates(
    first: str | dt.date, last: str | dt.date, null: float = 0.0, *, unique: bool = False
) -> Maker:
    """ISO dates in [first, last]."""
    start, end = _date(first).toordinal(), _date(last).toordinal()
    return column(
        lambda rng: dt.date.fromordinal(rng.randint(start, end)).isoformat(),
        null=null,
        unique=unique,
    )


def _date(value: str | dt.date) -> dt.date:
    return dt.date.fromisoformat(value) if isinstance(value, str) else value


def emails(*, null: float = 0.0, unique: bool = True) -> Maker:
    """ASCII addresses such as `jose.novak17@example.org`, in domains reserved for examples."""

    def draw(rng: random.Random) -> str:
        local = f"{ascii_letters(_first(rng))}.{ascii_letters(_last(rng))}"
        number = str(rng.randint(1, 99)) if rng.random() < 0.5 else ""
        return f"{local}{number}@{rng.choice(LISTS['mail_domains'])}"

    return column(draw, null=null, unique=unique)


def ascii_letters(text: str) -> str:
    """The lower-case ASCII letters of `text`, accents dropped; `x` where none are left."""
    plain = unicodedata.normalize(
        "NFKD", text.replace("ł", "l").replace("Ł", "L").replace("ø", "o").replace("Ø", "O")
    )
    return "".join(letter for letter in plain.lower() if "a" <= letter <= "z") or "x"


def codes(prefix: str, digits: int = 5, *, null: float = 0.0, unique: bool = True) -> Maker:
    """Codes such as `INV-40213` for the prefix `INV-`."""
    top = 10**digits - 1
    return column(lambda rng: f"{prefix}{rng.randint(0, top):0{digits}d}", null=null, unique=unique)


def phones(*, null: float = 0.0) -> Maker:
    """Numbers such as `555-0142`, which nobody has."""
    return column(lambda rng: f"555-{rng.randint(100, 9999):04d}", null=null)


def streets(*, null: float = 0.0, unique: bool = False) -> Maker:
    """Addresses such as `14 Mill Lane`."""

    def draw(rng: random.Random) -> str:
        return f"{rng.randint(1, 180)} {rng.choice(LISTS['street_heads'])} {rng.choice(LISTS['street_tails'])}"

    return column(draw, null=null, unique=unique)


def titles(*parts: Sequence[str], null: float = 0.0, unique: bool = False) -> Maker:
    """One word of each part, joined by spaces; an empty word leaves its place out."""
    pools = [list(part) for part in parts]

    def draw(rng: random.Random) -> str:
        return " ".join(word for word in (rng.choice(pool) for pool in pools) if word)

    return column(draw, null=null, unique=unique)


def composed(
    patterns: Sequence[str], *, null: float = 0.0, unique: bool = False, **words: Sequence[str]
) -> Maker:
    """Texts such as `The Silent Harbor`: a pattern `The {mood} {place}` its fields drawn from
    `words`."""
    templates = list(patterns)
    pools = {field: list(pool) for field, pool in words.items()}

    def draw(rng: random.Random) -> str:
        template = rng.choice(templates)
        return template.format(**{field: rng.choice(pool) for field, pool in pools.items()})

    return column(draw, null=null, unique=unique)


def given(values: Sequence[Value]) -> Maker:
    """`values` themselves, in their order: for a table that is written out by hand."""

    def make(rng: random.Random, count: int) -> list[Value]:
        if count != len(values):
            raise ValueError(f"{len(values)} cells are given for {count} rows")
        return list(values)

    return make
