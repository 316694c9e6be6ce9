"""How `play` writes answers; apart, so that help needs no further package."""

from enum import StrEnum


class Format(StrEnum):
    """What stdout shows: every step and the answer, or the answers alone."""

    TEXT = "text"
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
