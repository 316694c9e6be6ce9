"""The hostile queries: `HostileQuery`, read from TOML. The files' README describes the fields."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from shared.errors import DataError, first_problem
from shared.sqltext import quote_identifier

DIRECTORY = Path(__file__).resolve().parent / "hostile"
SHOWN = "shown"
Outcome = Literal[
    "no_such_table", "sql_error", "sql_denied", "sql_budget", "sql_killed", "shown"
]  # fmt: skip


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


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class HostileQuery(BaseModel, frozen=True, extra="forbid"):
    """One hostile query. `sql` still has its placeholders; `expect` are the accepted outcomes."""

    name: str
    kind: str  # the file's name
    what: str
    sql: Annotated[str, BeforeValidator(join)]
    defence: str
    expect: Annotated[tuple[Outcome, ...], BeforeValidator(_as_list), Field(min_length=1)]
    shows: Annotated[str | None, BeforeValidator(join)] = None

    @model_validator(mode="after")
    def _check_shows(self) -> Self:
        if (SHOWN in self.expect) != (self.shows is not None):
            raise ValueError(f"`shows` is for the outcome `{SHOWN}`, and required with it")
        return self

    def statement(self, table: str, column: str, file: str) -> str:
        """Return the SQL for a server with `table`, whose first column is `column`.

        `file` is a path that the query may try to write to.
        """
        sql = self.sql.replace("@table@", quote_identifier(table))
        sql = sql.replace("@column@", quote_identifier(column))
        return sql.replace("@file@", file.replace("'", "''"))


def load(directory: Path = DIRECTORY) -> list[HostileQuery]:
    """Read every query of a directory's `*.toml`, by file name. Raises `DataError`."""
    queries: dict[str, HostileQuery] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            items = tomllib.loads(path.read_text(encoding="utf-8"))["query"]
        except (OSError, ValueError, KeyError) as error:
            reason = f"is not a file of hostile queries: {error!r}; see its README"
            raise DataError(f"{path} {reason}") from error
        for item in items:
            try:
                query = HostileQuery(kind=path.stem, **item)
            except ValidationError as error:
                where = f"{path}: query {item.get('name')!r}"
                raise DataError(f"{where}: {first_problem(error, 'it')}") from error
            if queries.setdefault(query.name, query) is not query:
                raise DataError(f"{path}: two queries are named {query.name!r}; rename one")
    if not queries:
        raise DataError(f"no hostile queries in {directory}: pass one of *.toml files as --hostile")
    return list(queries.values())
