"""Copies of training databases whose names must be quoted, for a model to learn it.

A copy's tables and columns are renamed as people write them in spreadsheets: with spaces, hyphens,
accents or as SQL's own words. Golds are rewritten with the same names; the questions stay.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
from sqlglot import exp
from sqlglot.errors import SqlglotError

from data.choose import TRAIN
from data.golds.check_gold import open_readonly
from data.sources.import_source import Source
from shared.errors import DatabaseLoadError
from shared.sql_parser import parse_sql
from shared.sqltext import RESERVED, quote_identifier, sql_name

SUFFIX = "_quoted"
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]+")
_VOWEL, _ACCENTS = re.compile("[aeiou]"), dict(zip("aeiou", "áéíóú", strict=True))
_COLUMNS = """
    SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c
    WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' ORDER BY t.rowid, c.cid
"""


def accented(words: list[str]) -> str:
    return "-".join(_VOWEL.sub(lambda found: _ACCENTS[found[0]], word, count=1) for word in words)


def reserved(words: list[str]) -> str:
    """Return the first of SQL's own words: `Order` for `order_id`; spaced without one."""
    return next((word for word in words if RESERVED.fullmatch(word)), " ".join(words))


STYLES: tuple[Callable[[list[str]], str], ...] = (" ".join, reserved, accented)


def new_names(names: Iterable[str], style: Callable[[list[str]], str]) -> dict[str, str]:
    """Return the new name of each table and column, by its name in lower case, no two alike."""
    found: dict[str, str] = {}
    taken = {name.lower() for name in names}
    for name in sorted({name.lower(): name for name in names}.values()):
        new = style([word.capitalize() for word in _WORDS.findall(name)])
        if new and new.lower() not in taken:
            taken.add(new.lower())
            found[name.lower()] = new
    return found


def add_quoted_copies(source: Source, count: int, seed: int = 0) -> Source:
    """Return `source` with copies of `count` databases that have training questions."""
    names = sorted(
        {row.database for row in source.rows if row.split == TRAIN} & {*source.databases}
    )
    chosen = random.Random(f"quoted:{seed}").sample(names, min(count, len(names)))
    renamed: dict[str, Mapping[str, str]] = {}
    databases = dict(source.databases)
    rows = list(source.rows)
    for number, name in enumerate(sorted(chosen)):
        path = source.databases[name]
        with closing(open_readonly(path)) as connection:
            schema = _schema(connection)
        old = [*schema, *(column for columns in schema.values() for column in columns)]
        names_of = new_names(old, STYLES[number % len(STYLES)])
        copy = f"{name}{SUFFIX}"
        databases[copy], renamed[copy] = path, names_of
        for row in source.rows:
            if row.database == name and (sql := requoted(row.sql, names_of)):
                rows.append(
                    replace(row, question_id=f"{row.question_id}-quoted", database=copy, sql=sql)
                )

    def write(path: Path, target: Path) -> None:
        source.write(path, target)
        if target.stem in renamed:
            rename(target, renamed[target.stem])

    return replace(source, rows=rows, databases=databases, write=write)


def requoted(sql: str, names: Mapping[str, str]) -> str | None:
    """Return a gold with new names, in quotes where they need them; None if unsure."""
    try:
        tree = parse_sql(sql)
    except (SqlglotError, RecursionError):
        return None
    for one in list(tree.find_all(exp.Identifier)):
        if one.quoted and one.name.lower() in names:
            return None  # perhaps a text in double quotes
        if new := names.get(one.name.lower()):
            one.replace(exp.to_identifier(new, quoted=sql_name(new) != new))
    return str(tree.sql("sqlite"))


def rename(path: Path, names: Mapping[str, str]) -> None:
    """Rename the tables and columns of a database. Raises `DatabaseLoadError`."""
    try:
        with closing(apsw.Connection(str(path))) as connection:
            for table, columns in _schema(connection).items():
                where = f"ALTER TABLE {quote_identifier(table)} RENAME"
                for column in columns:
                    if new := names.get(column.lower()):
                        old, new = quote_identifier(column), quote_identifier(new)
                        connection.execute(f"{where} COLUMN {old} TO {new}")
                if new := names.get(table.lower()):
                    connection.execute(f"{where} TO {quote_identifier(new)}")
    except apsw.Error as error:
        raise DatabaseLoadError(f"can't rename the tables of {path}: {error}") from error


def _schema(connection: apsw.Connection) -> dict[str, list[str]]:
    """Return the columns of each table."""
    schema: dict[str, list[str]] = {}
    for table, column in connection.execute(_COLUMNS):
        schema.setdefault(str(table), []).append(str(column))
    return schema
