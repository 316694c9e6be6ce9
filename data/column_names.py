"""What the name of a column says of its numbers: that they are codes, or days."""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

Value = int | float | str

CODES = re.compile(r"(?<![a-z])(isbn|version)(?![a-z])")
PHONES = re.compile(r"(?<![a-z])(phone|telephone|telefon|tel|fax|mobile)(?![a-z])")
_PHONE = re.compile(r"(\D*\d){7}")  # fewer digits count something
AS_CODES = "stays text: its name says that its numbers are codes"
DAYS = re.compile(r"(?<![a-z])(date|day|datum|fecha|dob|birthday)(?![a-z])(?!.*[^a-z](key|id|sk)$)")
# whose numbers may look like days
COUNTS = re.compile(
    r"(?<![a-z])(per[ _](\w+[ _])?day|day[^a-z)])|/ ?day"
    r"|(spent|paid|billed|costs?|sales|revenue|amount|total|month|year)[ _]to[ _]date"
)
SERIALS = (10_000, 80_000)  # Excel's days from 1927 to 2119
COMPACT = (18_000_101, 21_001_231)  # days as YYYYMMDD


def name_words(name: str) -> str:
    """Return a column's name in lower case, with its words apart."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def is_code(words: str, kind: str, known: Iterable[str]) -> bool:
    """Return whether a column that can be read as `kind` holds codes, as its `name_words` say."""
    if PHONES.search(words):
        return kind == "INTEGER" and all(map(_PHONE.match, known))
    return bool(CODES.search(words)) and not DAYS.search(words)


def days_of(words: str, numbers: Sequence[float]) -> tuple[Callable[[Value], str], str] | None:
    """Return what reads the numbers of a column of `DAYS`, and a note; None if they are no days.

    They are YYYYMMDD, or days as Excel counts them. `words` are the column's `name_words`.
    """
    if not numbers:
        return None
    least, most = min(numbers), max(numbers)
    whole = all(float(one).is_integer() for one in numbers)

    def compact(number: Value) -> str:
        return datetime.strptime(f"{float(number):.0f}", "%Y%m%d").date().isoformat()

    def serial(number: Value) -> str:
        moment = datetime(1899, 12, 30) + timedelta(seconds=round(float(number) * 86_400))
        return moment.date().isoformat() if whole else moment.isoformat(" ")

    if whole and COMPACT[0] <= least and most <= COMPACT[1]:
        with suppress(ValueError):
            for number in numbers:
                compact(number)
            return compact, f"is read as dates: {least:.0f} is YYYYMMDD"
    if SERIALS[0] <= least and most <= SERIALS[1] and not COUNTS.search(words):
        return serial, f"is read as dates: {least:g} is Excel's day {serial(least)}"
    return None
