"""The hostile queries of `hostile/*.toml`, whose README describes the fields."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.sqltext import quote_identifier

DIRECTORY = Path(__file__).resolve().parent / "hostile"
SHOWN = "shown"


@dataclass(frozen=True)
class HostileQuery:
    """One hostile query. `sql` still has its placeholders; `expect` are the accepted outcomes."""

    defence: str
    name: str
    what: str
    sql: str
    expect: tuple[str, ...] = ("sql_denied",)
    shows: str | None = None

    def statement(self, table: str, column: str, file: str) -> str:
        """Return the SQL for a table and its first column; it may try to write to `file`."""
        sql = self.sql.replace("@table@", quote_identifier(table))
        sql = sql.replace("@column@", quote_identifier(column))
        return sql.replace("@file@", file.replace("'", "''"))


def load() -> list[HostileQuery]:
    """Read every query, by file name."""
    return [
        HostileQuery(defence, **{key: _READERS.get(key, str)(value) for key, value in item.items()})
        for path in sorted(DIRECTORY.glob("*.toml"))
        for defence, items in tomllib.loads(path.read_text(encoding="utf-8")).items()
        for item in items
    ]


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


_READERS: dict[str, Callable[[Any], Any]] = {
    "sql": join,
    "shows": join,
    "expect": lambda value: (value,) if isinstance(value, str) else tuple(value),
}
