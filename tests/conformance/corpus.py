"""The hostile queries of `hostile/*.toml`, whose README describes the fields."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.sqltext import quote_identifier

DIRECTORY = Path(__file__).resolve().parent / "hostile"
SHOWN = "shown"
LIMITS = ("CPU", "calls", "heap", "limits", "result", "steps")  # each error is `sql_budget`


@dataclass(frozen=True)
class HostileQuery:
    """One hostile query. `sql` still has its placeholders; `expect` are the accepted outcomes."""

    defence: str
    name: str
    what: str
    sql: str
    expect: tuple[str, ...]
    shows: str | None = None

    def statement(self, table: str, column: str, file: str) -> str:
        """Return the SQL for a table and its first column; it may try to write to `file`."""
        sql = self.sql.replace("@table@", quote_identifier(table))
        sql = sql.replace("@column@", quote_identifier(column))
        return sql.replace("@file@", file.replace("'", "''"))


def load() -> list[HostileQuery]:
    """Read every query, by file name."""
    return [
        _query(defence, **item)
        for path in sorted(DIRECTORY.glob("*.toml"))
        for defence, items in tomllib.loads(path.read_text(encoding="utf-8")).items()
        for item in items
    ]


def _query(
    defence: str, name: str, what: str, sql: Any, expect: Any = None, shows: Any = None
) -> HostileQuery:
    by_default = SHOWN if shows else "sql_budget" if defence in LIMITS else "sql_denied"
    expected = [expect or by_default] if not isinstance(expect, list) else expect
    shown = None if shows is None else join(shows)
    return HostileQuery(defence, name, what, join(sql), tuple(expected), shown)


def join(text: Any) -> str:
    """Join a list of parts, each a string or `[*parts, n]`: these n times, with @i@ and @h@."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else _repeat(part) for part in text)


def _repeat(part: list[Any]) -> str:
    *parts, times = part
    once = join(parts)
    numbers = range(1, times + 1)
    return "".join(once.replace("@i@", str(i)).replace("@h@", str(i - 1)) for i in numbers)
