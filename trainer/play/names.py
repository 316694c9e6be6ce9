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

MAX_S = 3.0  # of reading values; names that were not looked for by then are not reported
LEAST_LETTERS = 3
QUOTED = re.compile(r"""(?<!\w)["“'‘]([^"”'’]+)["”'’](?!\w)""")
DATES = frozenset(map(str.casefold, (*calendar.month_name, *calendar.day_name)))
NUMERIC = re.compile("INT|REAL|FLOA|DOUB|NUM|DEC|BOOL|DATE|TIME", re.IGNORECASE)


def unknown_names(path: Path, question: str) -> list[str]:
    """Return the names in a question that nothing in the database at `path` is called or contains.

    Values are read for at most `MAX_S`, and only those of columns that can hold text.
    """
    deadline, unknown = time.monotonic() + MAX_S, []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            tables = _tables(connection)
            for name in dict.fromkeys(names_in(question)):
                if not any(_is_in(connection, name, *table) for table in tables.items()):
                    unknown.append(name)
        except sqlite3.Error:  # too late, or a damaged file, which play names itself
            pass
    return unknown


def names_in(question: str) -> Iterator[str]:
    """Yield the texts in quotes, and the words with a capital that begin no sentence."""
    yield from QUOTED.findall(question)
    for before, word in pairwise(re.findall(r"[^\W_][\w-]*|[.?!:]", QUOTED.sub("", question))):
        name = word[0].isupper() and before not in ".?!:" and len(word) >= LEAST_LETTERS
        if name and word.casefold() not in DATES:
            yield word


def _tables(connection: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return the declared types of the columns of each table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    query = "SELECT name, type FROM pragma_table_xinfo(?)"
    return {table: dict(connection.execute(query, [table]).fetchall()) for [table] in tables}


def _is_in(connection: sqlite3.Connection, name: str, table: str, columns: dict[str, str]) -> bool:
    """Return whether a table, one of its columns or of its values contains a name or its stem."""
    stem = name.casefold().removesuffix("s")
    if any(stem in called.casefold().replace("_", "") for called in (table, *columns)):
        return True
    # LIKE ignores the case of ASCII letters only
    pattern = "%" + "".join(char if char.isascii() else "_" for char in stem) + "%"
    texts = [quote_identifier(one) for one, kind in columns.items() if not NUMERIC.search(kind)]
    if not texts:
        return False
    found = " OR ".join(f"{column} LIKE ?1" for column in texts)
    query = f"SELECT EXISTS (SELECT 1 FROM {quote_identifier(table)} WHERE {found})"
    return bool(connection.execute(query, [pattern]).fetchone()[0])
