"""SQLite reads quoted names and strings back unchanged; which sort keys a query has."""

import sqlite3
from contextlib import closing

import apsw
import pytest
import sqlglot
from sqlglot.errors import SqlglotError

from shared.order_by import Unresolved, parse_query, tie_query
from shared.sqltext import (
    join_names,
    on_one_line,
    quote_identifier,
    quote_text,
    split_names,
    sql_name,
    unquote_identifier,
)

TEXTS = ["plain", "two words", 'a "quoted" name', "it's", "''", '""', "select", "ünïcode", "a;--b"]


@pytest.mark.parametrize("text", TEXTS)
def test_sqlite_reads_back_what_was_quoted(text):
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


def test_a_name_is_quoted_only_where_it_is_needed():
    keywords = apsw.keywords - {"VALUES"}  # which sqlglot does not read in quotes either
    for name in [*keywords, *map(str.lower, keywords)]:
        assert works(sql_name(name)), name
        assert (sql_name(name) == name) == (works(name) and name.upper() not in UNTRIED), name
    for name in TEXTS:
        assert works(sql_name(name)), name
    for name in ("orders", "_x1", "Name", "key", "plan"):
        assert works(name)
        assert sql_name(name) == name


def test_joined_names_are_split_again():
    names = [*(text for text in TEXTS if text), "a, b", '"', 'x", y']
    assert split_names(join_names(names)) == names
    assert split_names("a, b(c), d") == ["a", "b(c)", "d"]
    assert split_names("") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [("[a]]", "a]"), ("`a``b`", "a`b"), ("'it''s'", "it's"), ('"', '"'), ("a", "a")],
)
def test_every_quote_of_sqlite_is_removed(text, name):
    assert unquote_identifier(text) == name


@pytest.mark.parametrize(
    ("sql", "hidden", "keys"),
    [
        ("SELECT a, b FROM t ORDER BY b", 0, (1,)),
        ("SELECT a, b FROM t ORDER BY 2, a", 0, (1, 0)),
        ("SELECT a FROM t ORDER BY b, c", 2, (-2, -1)),
        ("SELECT a AS b, b AS c FROM t ORDER BY b", 0, (0,)),  # an alias comes before a column
        ("SELECT *, a + 1 AS n FROM t ORDER BY n", 1, (-1,)),
        ("SELECT a FROM t UNION SELECT b FROM t ORDER BY b", 0, (0,)),  # of the second branch
        ("SELECT a FROM t ORDER BY a COLLATE NOCASE LIMIT 2", 0, (0,)),
    ],
)
def test_each_key_is_an_output_column_or_a_hidden_one(sql, hidden, keys):
    ties = tie_query(parse_query(sql))
    assert (ties.hidden, ties.keys) == (hidden, keys)
    assert "LIMIT" not in ties.sql


def test_a_row_is_split_into_what_is_visible_and_its_keys():
    ties = tie_query(parse_query("SELECT a, b FROM t ORDER BY b, c LIMIT 3 OFFSET 1"))
    assert (ties.start, ties.stop, ties.is_original) == (1, 4, False)
    assert ties.split((1, 2, 3)) == ((1, 2), (2, 3))


def test_a_distinct_select_with_hidden_keys_is_marked():
    visible, hidden = (
        tie_query(parse_query(f"SELECT DISTINCT a FROM t ORDER BY {key}")) for key in "ab"
    )
    assert (visible.distinct, hidden.distinct) == (False, True)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, b AS n FROM t ORDER BY n + 1",
        "SELECT a FROM t ORDER BY 1.5",
        "SELECT a FROM t UNION SELECT b FROM t ORDER BY 1e0",
        "SELECT a FROM t ORDER BY a LIMIT (SELECT 2)",
        "SELECT a FROM t UNION SELECT b FROM t ORDER BY a + 1",
    ],
)
def test_what_cannot_be_determined_is_an_error(sql):
    with pytest.raises(Unresolved):
        tie_query(parse_query(sql))


def test_without_order_and_limit_there_is_nothing_to_run():
    assert tie_query(parse_query("SELECT a FROM t")) is None


def test_a_statement_on_one_line_has_no_comments_and_its_texts_whole():
    sql = "SELECT a -- the sum\nFROM t /* of\nall */ WHERE b = 'x--y' AND \"c--d\" = 1 -- end"
    assert on_one_line(sql) == "SELECT a FROM t   WHERE b = 'x--y' AND \"c--d\" = 1"
