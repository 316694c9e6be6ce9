"""Copies of databases whose names must be quoted have the same answers under other names."""

import json
from pathlib import Path

from typer.testing import CliRunner

from data.commands import app
from data.sources.quoted_names import new_names, requoted, reserved, spaced
from shared.dataset import database_path, load_splits
from shared.sqltext import sql_name
from tests.databases import make_database

ROWS = [
    ("How many items were ordered?", "SELECT count(*) FROM order_items"),
    ("Which town has a home?", "SELECT T1.home_town FROM people AS T1 WHERE T1.unit_price = 1.5"),
    ("Which prices have people called home_town?", 'SELECT unit_price FROM people WHERE name = "Ann"'),
]
SCHEMA = """
CREATE TABLE people (name TEXT, home_town TEXT, unit_price REAL);
CREATE TABLE order_items (order_id INTEGER, people_name TEXT REFERENCES people (name));
CREATE VIEW towns AS SELECT home_town FROM people;
INSERT INTO people VALUES ('Ann', 'Oslo', 1.5), ('Bob', 'Rome', 2.5);
INSERT INTO order_items VALUES (1, 'Ann'), (2, 'Bob'), (3, 'Ann');
"""


def test_names_are_new_and_no_two_are_alike() -> None:
    names = ["order_items", "order_id", "name", "unitPrice", "unit price"]
    assert new_names(names, spaced) == {
        "order_id": "Order Id",
        "order_items": "Order Items",
    }, "'Unit Price' is taken"
    assert new_names(names[:3], reserved) == {"order_id": "Order"}, "'Order' is taken"


def test_a_gold_gets_the_new_names_where_it_has_the_old_ones() -> None:
    names = {"order_id": "Order", "home_town": "Home Town", "name": "Name"}
    sql = "SELECT T1.Order_ID, name FROM t AS T1 WHERE x = 'order_id' AND y = \"Ann\""
    assert requoted(sql, names) == (
        "SELECT T1.\"Order\", Name FROM t AS T1 WHERE x = 'order_id' AND y = \"Ann\""
    )
    assert requoted("SELECT (", names) is None
