"""SQLite reads quoted names and strings back unchanged."""

import sqlite3
from contextlib import closing

import apsw
import pytest
import sqlglot
from sqlglot.errors import SqlglotError

from shared.sqltext import (
    join_names,
    quote_identifier,
    quote_text,
    split_names,
    sql_name,
    unquote_identifier,
)

TEXTS = ["plain", "two words", 'a "quoted" name', "it's", "''", '""', "select", "ünïcode", "a;--b"]


@pytest.mark.parametrize("text", TEXTS)
def test_sqlite_reads_back_what_was_quoted(text: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE {quote_identifier(text)} (x)")
        cursor = connection.execute(
            f"SELECT {quote_text(text)} AS {quote_identifier(text)} FROM sqlite_schema"
        )
        assert cursor.description[0][0] == text
        assert cursor.fetchall() == [(text,)]
        assert connection.execute("SELECT name FROM sqlite_schema").fetchone() == (text,)
        assert unquote_identifier(quote_identifier(text)) == text


QUERIES = (
    "SELECT {} FROM {} WHERE {} = 7 GROUP BY {} ORDER BY {} DESC",
    "SELECT t.{}, max(t.{}) FROM {} AS t LEFT JOIN {} ON {}.{} = t.{} GROUP BY t.{}",
    "SELECT ({}) FROM {} AS t NATURAL JOIN {} WHERE ({} = 7)",
)
# words of joins, IF and INDEXED need quotes only in statements that are not tried here
UNTRIED = {"CROSS", "FULL", "IF", "INDEXED", "INNER", "LEFT", "NATURAL", "OUTER", "RIGHT"}


def works(word: str) -> bool:
    """Return whether SQLite and sqlglot read a word as the name of a table and of a column."""
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE {word} ({word})")
            connection.execute(f"INSERT INTO {word} VALUES (7)")
            for query in (query.replace("{}", word) for query in QUERIES):
                sqlglot.parse_one(query, dialect="sqlite")
                if connection.execute(query).fetchall()[:1] not in ([(7,)], [(7, 7)]):
                    return False
    except (sqlite3.Error, SqlglotError):
        return False
    return True


def test_a_name_is_quoted_only_where_it_is_needed() -> None:
    keywords = apsw.keywords - {"VALUES"}  # which sqlglot does not read in quotes either
    for name in [*keywords, *map(str.lower, keywords)]:
        assert works(sql_name(name)), name
        assert (sql_name(name) == name) == (works(name) and name.upper() not in UNTRIED), name
    for name in TEXTS:
        assert works(sql_name(name)), name
    for name in ("orders", "_x1", "Name", "key", "plan"):
        assert works(name)
        assert sql_name(name) == name


def test_joined_names_are_split_again() -> None:
    names = [*(text for text in TEXTS if text), "a, b", '"', 'x", y']
    assert split_names(join_names(names)) == names
    assert split_names("a, b(c), d") == ["a", "b(c)", "d"]
    assert split_names("") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [("[a]]", "a]"), ("`a``b`", "a`b"), ("'it''s'", "it's"), ('"', '"'), ("a", "a")],
)
def test_every_quote_of_sqlite_is_removed(text: str, name: str) -> None:
    assert unquote_identifier(text) == name
