"""SQLite reads quoted names and strings back unchanged."""

import sqlite3
from contextlib import closing

import apsw
import pytest

from shared.sqltext import (
    RESERVED,
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


def test_a_name_is_quoted_where_sqlite_needs_it() -> None:
    for name in [*TEXTS, *apsw.keywords, *map(str.lower, apsw.keywords)]:
        word = sql_name(name)
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE {word} ({word})")
            connection.execute(f"INSERT INTO {word} VALUES (7)")
            for query in (
                f"SELECT {word} FROM {word} WHERE {word} = 7 GROUP BY {word} ORDER BY {word} DESC",
                f"SELECT t.{word} FROM {word} AS t LEFT JOIN {word} ON {word}.{word} = t.{word}",
                f"SELECT {word} FROM {word} NATURAL JOIN (SELECT 7 AS {word}) AS other",
            ):
                assert connection.execute(query).fetchall() == [(7,)], name


def test_only_what_needs_quotes_has_them() -> None:
    assert {word for word in apsw.keywords if RESERVED.fullmatch(word)} == set(
        RESERVED.pattern.split("|")
    )
    for name in ("orders", "_x1", "Name", "key", "plan"):
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
