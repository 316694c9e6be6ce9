"""Copies of training databases whose names must be quoted: other names, the same answers."""

import sqlite3

from data.sources.import_source import import_source
from data.sources.quoted_names import accented, add_quoted_copies, new_names, requoted, reserved
from data.sources.spider import read_spider
from shared.dataset import database_path, load_splits
from tests.data.sources.importing import make_spider, make_spider_database, row, write_json

SCHEMA = """
CREATE TABLE people (name TEXT PRIMARY KEY, home_town TEXT, unit_price REAL);
CREATE TABLE order_items (order_id INTEGER, people_name TEXT REFERENCES people (name));
CREATE VIEW towns AS SELECT home_town FROM people;
INSERT INTO people VALUES ('Ann', 'Oslo', 1.5), ('Bob', 'Rome', 2.5);
INSERT INTO order_items VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Ann');
"""
GOLDS = [
    "SELECT count(*) FROM order_items",
    "SELECT T1.home_town FROM people AS T1 JOIN order_items AS T2 ON T1.name = T2.people_name "
    "WHERE T2.order_id = 2",
    'SELECT Unit_Price FROM people WHERE name = "Ann"',
]


def test_names_are_new_and_no_two_are_alike():
    names = ["order_items", "order_id", "homeTown", "home town", "name"]
    new = new_names(names, reserved)
    assert new == {"order_id": "Order"}, "'Order' and 'Home Town' are taken"
    assert new_names(["order_items", "name"], accented) == {
        "order_items": "Ordér-Itéms",
        "name": "Náme",
    }


def test_a_gold_gets_the_new_names_where_it_has_the_old_ones():
    names = {"order_id": "Order", "name": "Name"}
    sql = "SELECT T1.Order_ID, name FROM t AS T1 WHERE x = 'order_id' AND y = \"Ann\""
    assert requoted(sql, names) == (
        'SELECT T1."Order", Name FROM t AS T1 WHERE x = \'order_id\' AND y = "Ann"'
    )
    assert requoted("SELECT (", names) is None


def test_copies_have_the_answers_of_their_originals(tmp_path):
    root = make_spider(tmp_path / "spider")
    make_spider_database(root, "orders", SCHEMA)
    rows = [row("orders", f"What is {number}?", sql) for number, sql in enumerate(GOLDS)]
    write_json(root / "train_spider.json", rows)
    out = tmp_path / "out"
    report = import_source(add_quoted_copies(read_spider(root), 5), out)
    assert not report.dropped or {one.split for one in report.dropped} == {"eval"}
    questions = load_splits(out)["train"]
    own, copies = questions[: len(GOLDS)], questions[len(GOLDS) :]
    assert [one.gold_answer for one in copies] == [one.gold_answer for one in own] != []
    assert {one.database_name for one in copies} == {"orders_quoted"}
    assert all('"' in one.gold_sql for one in copies)
    with sqlite3.connect(database_path(out, "orders_quoted")) as connection:
        assert list(connection.execute("SELECT count(*) FROM towns")) == [(2,)]
        assert not list(connection.execute("PRAGMA foreign_key_check"))
