"""Read the date, or date and time, in one cell of an answer."""

import re
from datetime import UTC, datetime

_ISO = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)


def iso_moment(text: str) -> datetime | None:
    """Return the moment of an ISO date (its midnight) or date and time; None for any other text.
    With an offset it is in UTC; without one it never equals a moment that has one."""
    if not _ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # 30 February; an offset beyond year 1 or 9999
        return None
