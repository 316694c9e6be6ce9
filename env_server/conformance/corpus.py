"""The hostile queries: `HostileQuery`, read from TOML. The files' README describes the fields."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.sqltext import quote_identifier

DIRECTORY = Path(__file__).resolve().parent / "hostile"
CODES = ("no_such_table", "sql_error", "sql_denied", "sql_budget", "sql_killed")
SHOWN = "shown"


class CorpusError(Exception):
    """A directory of hostile queries can't be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class HostileQuery:
    """One hostile query. `sql` still has its placeholders; `expect` are the accepted outcomes."""

    name: str
    kind: str  # the file's name
    what: str
    sql: str
    defence: str
    expect: tuple[str, ...]
    shows: str | None

    def statement(self, table: str, column: str, file: str) -> str:
        """Return the SQL for a server with `table`, whose first column is `column`.

        `file` is a path that the query may try to write to.
        """
        sql = self.sql.replace("@table@", quote_identifier(table))
        sql = sql.replace("@column@", quote_identifier(column))
        return sql.replace("@file@", file.replace("'", "''"))


def load(directory: Path = DIRECTORY) -> list[HostileQuery]:
    """Read every query of a directory's `*.toml`, by file name. Raises `CorpusError`."""
    queries: dict[str, HostileQuery] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            items = tomllib.loads(path.read_text(encoding="utf-8"))["query"]
        except (OSError, ValueError, KeyError) as error:
            raise CorpusError(
                f"{path} is not a file of hostile queries: {error!r}; see its README"
            ) from error
        for item in items:
            query = _query(item, path)
            if queries.setdefault(query.name, query) is not query:
                raise CorpusError(f"{path}: two queries are named {query.name!r}; rename one")
    if not queries:
        raise CorpusError(
            f"no hostile queries in {directory}: pass a directory of *.toml files with --hostile"
        )
    return list(queries.values())


def _query(item: dict[str, Any], path: Path) -> HostileQuery:
    where = f"{path}: query {item.get('name')!r}"
    fields = {"name", "what", "sql", "defence", "expect"}
    if not fields <= set(item) <= fields | {"shows"}:
        needed, given = ", ".join(sorted(fields)), ", ".join(item)
        raise CorpusError(f"{where} has the fields {given}; expected {needed}, and maybe shows")
    expect = (item["expect"],) if isinstance(item["expect"], str) else tuple(item["expect"])
    if not expect or set(expect) - {*CODES, SHOWN}:
        outcomes = ", ".join((*CODES, SHOWN))
        raise CorpusError(f"{where} expects {item['expect']!r}; the outcomes are {outcomes}")
    if (SHOWN in expect) != ("shows" in item):
        raise CorpusError(f"{where}: `shows` is for the outcome `{SHOWN}`, and required with it")
    sql, shows = join(item["sql"]), join(item["shows"]) if "shows" in item else None
    return HostileQuery(item["name"], path.stem, item["what"], sql, item["defence"], expect, shows)


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
