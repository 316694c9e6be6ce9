"""The names in a question that no table, column or value of a database contains."""

import calendar
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from shared.sqltext import quote_identifier
from trainer.play.database import schema_names

MAX_S = 3.0  # of reading values; after that no name is reported
LEAST_LETTERS = 3
QUOTED = re.compile(r"""(?<!\w)["“'‘]([^"”'’]+)["”'’](?!\w)""")
DATES = frozenset(map(str.casefold, (*calendar.month_name, *calendar.day_name)))
COLUMNS = "SELECT c.name FROM pragma_table_xinfo(?) AS c"


def unknown_names(path: Path, question: str) -> list[str]:
    """Return the names in a question that nothing in a database is called or contains, or none if
    its values can't be read within `MAX_S`."""
    deadline = time.monotonic() + MAX_S
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            return [name for name in dict.fromkeys(names_in(question)) if not _in(connection, name)]
        except sqlite3.Error:  # too late, or a damaged file, which play names itself
            return []


def names_in(question: str) -> Iterator[str]:
    yield from QUOTED.findall(question)
    for before, word in pairwise(re.findall(r"[^\W_][\w-]*|[.?!:]", QUOTED.sub("", question))):
        name = word[0].isupper() and before not in ".?!:" and len(word) >= LEAST_LETTERS
        if name and word.casefold() not in DATES:
            yield word


def _in(connection: sqlite3.Connection, name: str) -> bool:
    stem = name.lower().removesuffix("s")
    if any(_squeezed(stem) in _squeezed(one) for one in schema_names(connection)):
        return True
    # LIKE ignores the case of ASCII letters only
    pattern = "%" + "".join(char if char.isascii() else "_" for char in stem) + "%"
    tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    for table, sql in tables.fetchall():
        columns = [quote_identifier(one) for [one] in connection.execute(COLUMNS, [table])]
        found = " OR ".join(f"{column} LIKE ?1" for column in columns)
        query = f"SELECT EXISTS (SELECT 1 FROM {quote_identifier(table)} WHERE {found})"
        [held] = connection.execute(query, [pattern]).fetchone()
        if held or stem in sql.lower():  # in a CHECK, for example
            return True
    return False


def _squeezed(name: str) -> str:
    """Return the letters and digits of a name: those of team_name and of 'Team Name' are equal."""
    return "".join(filter(str.isalnum, name.casefold()))
