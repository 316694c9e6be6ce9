"""The words of a question that match no table, column or value of a database."""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from shared.sqltext import quote_identifier

MAX_S = 3.0  # of reading values; the words that were not looked for by then are not named
LEAST_LETTERS = 3
ENDINGS = ("ies", "ing", "est", "ed", "er", "es", "ly", "s", "y", "e")
NUMERIC = re.compile("INT|REAL|FLOA|DOUB|NUM|DEC|BOOL|DATE|TIME", re.IGNORECASE)
# what questions are asked with, whatever the database
_STOP_WORDS = """
about above across after again ago all along also always and any are aren ask away back because
been before being below between both but can could cover did didn does doesn doing don done down
during each either else ever every few find first following for from gave get give given goes
got had has hasn have haven having hello help her here him his how its itself just kind know
last latter least less let like list long made make many may mean might more most much must name
named need neither never next none nor not now off once one ones only onto other our out over
own part per please put said same say see seen she should show shown since some something still
such take tell than thank thanks that the their them then there these they thing things this
those through thus too took two under until upon use used uses using very want wants was way
were what when where whether which while who whom whose why will with within without would yes
yet you your
add amount average avg big bigger biggest combined common compare compared comparison contain
contains count counts different distinct earlier earliest equal exact exactly exist fewer fewest
fraction great greater greatest half happen happened high higher highest include included
including individual items large larger largest late later latest low lower lowest maximum
median minimum nearest number numbers often overall percent percentage proportion quantity
rank range ratio rate recent recently record records round row rows share single small smaller
smallest sort sorted split sum top total totals twice unique value values
belong belongs born bought buy call called come comes go going keep kept left live lives paid pay
place placed ran run sell sold spend spent stand work works write written wrote
three four five six seven eight nine ten dozen hundred thousand million
day days week weeks month months year years today yesterday tomorrow hour hours minute minutes
second seconds date dates time times monday tuesday wednesday thursday friday saturday sunday
january february march april june july august september october november december
alphabetical alphabetically ascending descending order
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


def unknown_words(path: Path, question: str) -> list[str]:
    """Return the words of a question that nothing in the database at `path` is called or contains.

    Values are read for at most `MAX_S`, and only those of columns that can hold text.
    """
    asked = re.findall(r"\w+", question.casefold())
    words = [
        word
        for word in dict.fromkeys(asked)
        if len(word) >= LEAST_LETTERS and not word.isdigit() and word not in STOP_WORDS
    ]
    deadline = time.monotonic() + MAX_S
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        unknown = []
        try:
            columns = _columns(connection)
            names = {part for table, parts in columns for part in _parts(table, *map(str, parts))}
            for word in words:
                if not any(_alike(word, name) for name in names) and not any(
                    _is_in(connection, word, table, parts) for table, parts in columns
                ):
                    unknown.append(word)
        except sqlite3.Error:  # too late, or a damaged file, which play names itself
            pass
    return unknown


def _columns(connection: sqlite3.Connection) -> list[tuple[str, dict[str, str]]]:
    """Return the tables with the declared types of their columns."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    query = "SELECT name, type FROM pragma_table_xinfo(?)"
    return [(table, dict(connection.execute(query, [table]).fetchall())) for [table] in tables]


def _parts(*names: str) -> Iterator[str]:
    """Yield the words of names in snake or camel case, and each name as one word."""
    for name in names:
        parts = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))
        yield from (part.casefold() for part in (*parts, "".join(parts)))


def _stem(word: str) -> str:
    ends = (end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= LEAST_LETTERS)
    return word.removesuffix(next(ends, ""))


def _alike(word: str, name: str) -> bool:
    """Return whether a word is a name, an inflection of it, or what it abbreviates."""
    if len(name) < LEAST_LETTERS:
        return word == name
    stem, other = _stem(word), _stem(name)
    return stem.startswith(other) or other.startswith(stem)


def _is_in(connection: sqlite3.Connection, word: str, table: str, columns: dict[str, str]) -> bool:
    """Return whether a value of a table contains the stem of a word."""
    # LIKE ignores the case of ASCII letters only
    pattern = "%" + "".join(char if char.isascii() else "_" for char in _stem(word)) + "%"
    texts = [quote_identifier(one) for one, kind in columns.items() if not NUMERIC.search(kind)]
    if not texts:
        return False
    found = " OR ".join(f"{column} LIKE ?1" for column in texts)
    query = f"SELECT EXISTS (SELECT 1 FROM {quote_identifier(table)} WHERE {found})"
    return bool(connection.execute(query, [pattern]).fetchone()[0])
