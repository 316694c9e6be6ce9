"""Tables that are in no database: those that SQLite makes of a name, as `json_each`, `carray` or
`pragma_table_list`.

They are virtual tables, a few of which it registers when they are first named, so that none can be
listed or dropped. And it does not ask the authorizer about them where a join names their columns in
USING, or where no column is used.
"""

from functools import lru_cache

import apsw

from shared.sqltext import quote_identifier


@lru_cache(4096)
def is_builtin_table(name: str) -> bool:
    """Whether SQLite knows a table of this name where there is no database."""
    try:
        _empty().execute(f"EXPLAIN SELECT 1 FROM {quote_identifier(name)}").close()
    except apsw.SQLError as error:
        return not str(error).startswith("no such table")
    return True


@lru_cache(1)
def _empty() -> apsw.Connection:
    return apsw.Connection(":memory:")
