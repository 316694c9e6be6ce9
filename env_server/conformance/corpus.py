"""The hostile queries: `Hostile`, read from TOML. The files' README says what each field is."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.sqltext import quote_identifier

DIRECTORY = Path(__file__).resolve().parent / "hostile"
CODES = ("no_such_table", "sql_error", "sql_denied", "sql_budget", "sql_killed")
SHOWN = "shown"


class CorpusError(Exception):
    """The directory of hostile queries can't be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class Hostile:
    """One hostile query. `sql` still has its placeholders; `expect` are the outcomes that will do."""

    name: str
    kind: str  # the file's name
    what: str
    sql: str
    defence: str
    expect: tuple[str, ...]
    shows: str | None

    def statement(self, table: str, column: str, file: str) -> str:
        """The SQL against a server that has `table`, whose first column is `column`; `file` is a
        path to write to."""
        sql = self.sql.replace("@table@", quote_identifier(table))
        sql = sql.replace("@column@", quote_identifier(column))
        return sql.replace("@file@", file.replace("'", "''"))


def load(directory: Path = DIRECTORY) -> list[Hostile]:
    """Every query of the directory's `*.toml`, by file and then in order; `CorpusError` where one
    can't be read."""
    found: dict[str, Hostile] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            items = tomllib.loads(path.read_text(encoding="utf-8"))["query"]
        except (OSError, ValueError, KeyError) as error:
            raise CorpusError(
                f"{path} is no file of hostile queries: {error!r}; its README says what one is"
            ) from error
        for item in items:
            query = _query(item, path)
            if found.setdefault(query.name, query) is not query:
                raise CorpusError(
                    f"{path}: there are two queries of the name {query.name!r}; rename one"
                )
    if not found:
        raise CorpusError(
            f"no hostile queries in {directory}: name a directory of *.toml files with --hostile"
        )
    return list(found.values())


def _query(item: dict[str, Any], path: Path) -> Hostile:
    where = f"{path}: query {item.get('name')!r}"
    fields = {"name", "what", "sql", "defence", "expect"}
    if not fields <= set(item) <= fields | {"shows"}:
        raise CorpusError(
            f"{where} has the fields {', '.join(item)}; it needs {', '.join(sorted(fields))}"
        )
    expect = (item["expect"],) if isinstance(item["expect"], str) else tuple(item["expect"])
    if not expect or set(expect) - {*CODES, SHOWN}:
        raise CorpusError(
            f"{where} expects {item['expect']!r}; the outcomes are {', '.join(CODES)} and {SHOWN}"
        )
    if (SHOWN in expect) != ("shows" in item):
        raise CorpusError(f"{where}: `shows` goes with the outcome `{SHOWN}`, and with no other")
    shows = join(item["shows"]) if "shows" in item else None
    return Hostile(
        item["name"], path.stem, item["what"], join(item["sql"]), item["defence"], expect, shows
    )


def join(text: Any) -> str:
    """A string, or parts to join: a part is a string or `[*parts, n]`, which is those n times, with
    @i@ and @h@."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else _repeat(part) for part in text)


def _repeat(part: list[Any]) -> str:
    *parts, times = part
    once = join(parts)
    return "".join(
        once.replace("@i@", str(i)).replace("@h@", str(i - 1)) for i in range(1, times + 1)
    )
