"""What the texts of a column mean: numbers, dates, times, booleans, or words that have an order."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import apsw

from data.cell_formats import KINDS, Spelling, is_missing, is_usual, readings
from data.column_names import Value
from shared.sqltext import quote_identifier

LEAST_SHARE = 0.5  # of a column's texts, but for missing ones, that are more than this of one kind
SAMPLE = 1_000  # different texts of a column that are looked at
_SCALES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "k": 1e3, "bn": 1e9, "kg": 1e3, "km": 1e3}
_BOUND = re.compile(r"[<>≤≥~≈]=? ?(\d[\d.,]*)|(\d[\d.,]*) ?(?:\+|(?:-|–|to) ?(\d[\d.,]*)?)")
_ORDERS = (
    "january february march april may june july august september october november december",
    "jan feb mar apr may jun jul aug sep oct nov dec",
    "monday tuesday wednesday thursday friday saturday sunday",
    "mon tue wed thu fri sat sun",
    "xxs xs s m l xl xxl xxxl",
    "low medium high",
)
_FLAGS = [{"y": 1, "n": 0}, {"j": 1, "n": 0}, {"s": 1, "n": 0}, {"on": 1, "off": 0}]
_PLACES = {word: at for order in _ORDERS for at, word in enumerate(order.split())}


@dataclass(frozen=True)
class Meaning:
    """What texts are: `kind` is of KINDS, "word" or "range"; `sorted`: they sort as such."""

    kind: str
    read: Callable[[object], Value | None]
    sorted: bool = False


def meaning_of(connection: apsw.Connection, table: str, column: str) -> Meaning | None:
    """Return what a column's texts mean beyond text; None for texts, and for numbers."""
    name, quoted = quote_identifier(column), quote_identifier(table)
    texts = f"SELECT DISTINCT {name} FROM {quoted} WHERE typeof({name}) = 'text' LIMIT {SAMPLE}"
    numbers = f"SELECT 1 FROM {quoted} WHERE typeof({name}) IN ('integer', 'real') LIMIT 1"
    try:
        cells = tuple(str(cell) for (cell,) in connection.execute(texts))
        mixed = bool(cells) and bool(connection.execute(numbers).fetchall())
    except (apsw.Error, UnicodeDecodeError):
        return None
    return _meaning(cells, mixed)


@lru_cache(maxsize=1_024)
def _meaning(cells: tuple[str, ...], mixed: bool) -> Meaning | None:
    known = [cell for cell in cells if not is_missing(cell)]
    if not known:
        return Meaning("number", _reader("number", None)) if mixed else None
    fits: Counter[Spelling] = Counter()
    kinds: Counter[str] = Counter()
    for cell in known:
        found = readings(cell)
        fits.update(found.keys())
        kinds.update({one[0] for one in found if is_usual(one)})
    for kind in KINDS:
        if kinds[kind] > LEAST_SHARE * len(known):
            best = max((one for one in fits if one[0] == kind), key=lambda one: fits[one])
            read = _reader(kind, best)
            words = len({cell.lower() for cell in known})
            if kind == "boolean" and (words != 2 or kinds[kind] < len(known)):
                continue
            return Meaning(
                kind, read, kind in ("date", "time") and all(read(one) == one for one in known)
            )
    for flags in _FLAGS:
        if {cell.strip().lower() for cell in known} == flags.keys():
            return Meaning("boolean", partial(_looked_up, flags))
    if all(cell.strip().lower() in _PLACES for cell in known) and len(known) > 1:
        return Meaning("word", partial(_looked_up, _PLACES))
    others = [cell for cell in known if _bound(cell) is None]
    if len(others) < len(known) and all(readings(one, "number") for one in others):
        return Meaning("range", _reader("number", None))
    return None


def _reader(kind: str, best: Spelling | None) -> Callable[[object], Value | None]:
    """Return what reads a cell in the spelling that is best for its column, or else in another."""

    def read(cell: object) -> Value | None:
        if not isinstance(cell, str):
            return cell if isinstance(cell, int | float) else None
        if is_missing(cell):
            return None
        found = readings(cell, kind)
        spelling = best if best in found else next(iter(found), None)
        if spelling is not None:
            value, scale = found[spelling], _SCALES.get(spelling[-1].lower(), 1)
            return value if scale == 1 or isinstance(value, str) else value * scale
        return _bound(cell) if kind == "number" else cell

    return read


def _bound(cell: str) -> float | None:
    """Return the first number of a range such as '5-10', '100+' and '<5'."""
    found = _BOUND.fullmatch(cell.strip())
    if not found:
        return None
    ends = [readings(one, "number") for one in (found[1] or found[2], found[3]) if one]
    numbers = [float(next(iter(one.values()))) for one in ends if one]
    rising = len(numbers) == len(ends) and numbers == sorted(set(numbers))
    return numbers[0] if numbers and rising else None


def _looked_up(values: dict[str, int], cell: object) -> Value | None:
    return values.get(str(cell).strip().lower())
