"""Is this cell that value? `Read` is a cell as an answer writes it, `Scalar` a value of the gold."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from env_server.verifier.numbers import is_value, read_number

Scalar = int | float | str | None
Read = str | None  # None is JSON's null; JSON's true and false are these words

# combining characters of one cell; sorting a run of 20,000 of them takes Unicode's rules seconds
MAX_MARKS = 500

NULLS = frozenset(["null", "none", ""])
BOOLEANS = {"true": 1, "false": 0}  # SQLite has none: a comparison gives 1 or 0
_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’", "«": "»", "„": "“"}
_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def same_row(
    row: Sequence[Read], gold: Sequence[Scalar], words: frozenset[str] = frozenset()
) -> bool:
    """Whether each cell is the gold's at its place; as many as the shorter has. `words` are those
    of `same_cell`."""
    return all(same_cell(text, value, words) for text, value in zip(row, gold, strict=False))


def same_cell(text: Read, gold: Scalar, words: frozenset[str] = frozenset()) -> bool:
    """Whether an answer's cell is a gold value. `words`: stems that count as units
    (`numbers.unit_words`)."""
    if gold is None:
        return text is None or plain(text) in NULLS
    if text is None:
        return False
    if isinstance(gold, str):
        return _same_text(text, gold)
    bare = unquote(text.strip())
    given = read_number(bare, words)
    if given is None:
        return BOOLEANS.get(bare.casefold()) == gold
    return is_value(given, gold)


def text_key(row: Sequence[Read]) -> tuple[str, ...]:
    """Equal keys of `text_key` and `value_key` are rows that are surely the same."""
    return tuple(plain("NULL" if cell is None else cell) for cell in row)


def value_key(row: Sequence[Scalar]) -> tuple[str, ...]:
    return tuple(plain("NULL" if cell is None else str(cell)) for cell in row)


def iso_moment(text: str) -> datetime | None:
    """The moment that an ISO date or date and time names, a date its midnight; None for any other
    text.

    With an offset it is in UTC; without, it equals no moment that has one.
    """
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # 30 February; an offset that leaves the calendar
        return None


def unquote(text: str) -> str:
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def plain(text: str) -> str:
    """For comparing: one Unicode form, one letter case, single spaces. An escaped line end counts
    as a space."""
    if text.isascii() or sum(map(bool, map(unicodedata.combining, text))) <= MAX_MARKS:
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.replace("\\n", " ").replace("\\r", " ").casefold().split())


def _same_text(text: str, gold: str) -> bool:
    right, bare = plain(gold), unquote(text.strip())
    if right in (plain(text), plain(bare)):
        return True
    if not right.endswith(".") and right == plain(unquote(text.strip().removesuffix("."))):
        return True
    moment = iso_moment(gold.strip())
    return moment is not None and moment == iso_moment(bare)
