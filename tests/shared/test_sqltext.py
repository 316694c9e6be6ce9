"""SQLite reads quoted names and strings back unchanged."""

import sqlite3

import pytest

from shared.sqltext import quote_identifier, quote_text

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
