"""Questions without SQL, one per line of a .txt file: open, as nobody knows their answers."""

import re
from pathlib import Path

from shared.dataset import OpenQuestion
from shared.errors import DataError

SUFFIX = ".txt"
_OTHER_FORMAT = re.compile(r"[\[{]|question(_text)?[,;|]", re.IGNORECASE)


def open_questions(path: Path, prefix: str, database: str | None) -> list[OpenQuestion]:
    """Return the questions of a file about the only `database`; an id is `prefix` and the line.

    Raises `DataError`, with the path and the remedy.
    """
    if database is None:
        raise DataError(f"{path} names no databases: import one database at a time")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "write one question per line, in UTF-8"
        raise DataError(f"cannot read {path} ({error}): {remedy}") from error
    asked = [(at, " ".join(line.split())) for at, line in enumerate(lines, 1) if line.strip()]
    if not asked:
        raise DataError(f"{path} holds no question: write one per line")
    for number, text in asked:
        if "\0" in text or _OTHER_FORMAT.match(text):
            remedy = "JSON or CSV with SQL needs another suffix"
            raise DataError(f"{path} line {number} is no question: {text[:60]!r}: {remedy}")
    return [
        OpenQuestion(question_id=f"{prefix}{number:04}", question_text=text, database_name=database)
        for number, text in asked
    ]
