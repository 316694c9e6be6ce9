"""`import sqlite --mend`: names and cells as an import of CSV makes them, and all else kept."""

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from data.sources.duck_tables import SAMPLE
from data.sources.mend import mend
from tests.data.sources.importing import (
    files_of,
    imported,
    kept_questions,
    make_database,
    query,
    run,
    run_import,
    write_questions,
)

OWN = """
CREATE TABLE "client list" (id INTEGER PRIMARY KEY, "Full Name" TEXT UNIQUE);
INSERT INTO "client list" VALUES (1, 'Ann'), (2, 'Bo'), (3, '1,5');
CREATE TABLE orders (id TEXT PRIMARY KEY, client INTEGER REFERENCES "client list"(id),
  "Order Date" TEXT, "Amount (EUR)" VARCHAR(20) NOT NULL COLLATE NOCASE, paid TEXT, day INTEGER,
  serial REAL, phone TEXT, "mixed" , plain TEXT);
INSERT INTO orders VALUES
  ('1,5', 1, '31.12.2024', '1.250,50', 'yes', 20241231, 7, '0555', 'x', '7'),
  ('2,5', 2, 'N/A', '7,00', 'no', 20240229, 8, '0556', 3, '8'),
  ('3,5', 2, '01.02.2024', '9,25', '', 20240101, NULL, '0557', NULL, '');
CREATE INDEX by_amount ON orders ("Amount (EUR)");
CREATE VIEW late AS SELECT "Order Date" AS d, "Full Name" FROM orders JOIN "client list" AS c
  ON c.id = client WHERE d IS NOT NULL;
CREATE TRIGGER never AFTER UPDATE ON orders BEGIN DELETE FROM orders; END;
"""
ASKED = [
    ("How many orders?", "SELECT count(*) FROM orders"),
    ("What is the latest date?", 'SELECT max("Order Date") FROM orders'),
    ("What is the total?", 'SELECT sum("Amount (EUR)") FROM orders'),
    ("Who is client 2?", 'SELECT "Full Name" FROM "client list" WHERE id = 2'),
    ("What is the first date?", "SELECT min([ORDER DATE]) FROM orders"),
    ("Who is client 1?", 'SELECT "Client List"."full name" FROM "Client List" WHERE id = 1'),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_database(tmp_path / "own.db", OWN)
    return tmp_path


def test_a_unique_column_keeps_its_cells(tmp_path):
    columns = "id INTEGER PRIMARY KEY, code TEXT UNIQUE, price TEXT"
    rows = "(1, '1,50', '1,50'), (2, '2,50', '2,50')"
    path = make_database(
        tmp_path / "parts.db", f"CREATE TABLE part ({columns}); INSERT INTO part VALUES {rows};"
    )
    mend(path, write=True)
    assert query(path, "SELECT code, price FROM part") == [("1,50", 1.5), ("2,50", 2.5)]


def test_names_and_cells_are_mended_and_all_else_is_kept(home):
    before = files_of(home)
    imported("sqlite", "own.db", "--mend", "--out", "out")
    path = home / "out/databases/own/own.sqlite"
    assert query(path, "SELECT * FROM orders") == [
        ("1,5", 1, "2024-12-31", 1250.5, 1, "2024-12-31", 7.0, "0555", "x", 7),
        ("2,5", 2, None, 7.0, 0, "2024-02-29", 8.0, "0556", 3, 8),
        ("3,5", 2, "2024-02-01", 9.25, None, "2024-01-01", None, "0557", None, None),
    ]
    assert query(path, "SELECT Full_Name FROM client_list") == [("Ann",), ("Bo",), ("1,5",)]
    assert query(path, "SELECT d, Full_Name FROM late") == [
        ("2024-12-31", "Ann"), ("2024-02-01", "Bo")
    ]  # fmt: skip
    assert query(path, "SELECT id FROM orders WHERE Amount_EUR > 8.5 ORDER BY Amount_EUR") == [
        ("3,5",), ("1,5",)
    ]  # fmt: skip
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    [(table, column)] = query(path, 'SELECT "table", "to" FROM pragma_foreign_key_list("orders")')
    assert (table, column) == ("client_list", "id")
    kinds = dict(query(path, "SELECT name, type FROM pragma_table_info('orders')"))
    assert (kinds["Amount_EUR"], kinds["paid"], kinds["phone"]) == ("REAL", "INTEGER", "TEXT")
    notes = json.loads((home / "out/import_report.json").read_text())["notes"]
    assert "own.db: orders.Order Date is read as dates: '01.02.2024' is '2024-02-01', and has "
    assert any("'Order Date' is called Order_Date" in note for note in notes)
    assert any("orders.plain is read as numbers, which were text" in note for note in notes)
    assert {name: before[name] for name in ("own.db",)} == {"own.db": files_of(home)["own.db"]}


def test_questions_are_asked_of_the_new_names(home):
    asked = write_questions(home / "q.jsonl", ASKED)
    found = ("sqlite", "own.db", "--questions", asked, "--eval-share", 0.25, "--out")
    imported(*found, "out", "--mend")
    kept = kept_questions(home / "out")
    assert {text: one.gold_answer for text, one in kept.items()} == {
        "How many orders?": 3,
        "What is the latest date?": "2024-12-31",
        "What is the total?": 1266.75,
        "Who is client 2?": "Bo",
        "What is the first date?": "2024-02-01",
        "Who is client 1?": "Ann",
    }


def test_a_gold_that_takes_mended_texts_apart_is_dropped_if_its_answer_changes(home):
    asked = [
        ("How many in 2024?", """SELECT count(*) FROM orders WHERE "Order Date" LIKE '%.2024'"""),
        ("Which month?", 'SELECT substr("Order Date", 4, 2) FROM orders WHERE day = 20241231'),
        ("When?", """SELECT "Order Date" FROM orders WHERE plain LIKE '7%'"""),
        ("Whose?", """SELECT "Full Name" FROM "client list" WHERE "Full Name" LIKE 'A%'"""),
        ("What?", 'SELECT sum(CAST("Amount (EUR)" AS REAL)) FROM orders'),
    ]
    with closing(apsw.Connection("own.db")) as connection:
        connection.execute("CREATE TABLE log (code TEXT, order_date TEXT, price TEXT, note TEXT)")
        connection.execute("INSERT INTO log VALUES ('12345678', '45007', '12,50', 'a3')")
        connection.execute("INSERT INTO log VALUES ('x', '45008', '-', 'b4')")
    asked += [
        ("Which code?", "SELECT code FROM log WHERE note LIKE '%3'"),
        ("Which price?", "SELECT note, price FROM log WHERE note LIKE 'b%'"),
        ("Who?", """SELECT id FROM orders WHERE "Order Date" LIKE '%.12.2024'"""),
    ]
    questions = write_questions(home / "q.jsonl", asked)
    text = imported("sqlite", "own.db", "--mend", "--questions", questions, "--out", "out")
    kept = kept_questions(home / "out")
    assert kept.pop("Which code?").gold_answer == "12345678"
    assert kept.pop("Which price?").gold_answer == [["b4", None]]
    assert "mended: SQLite answers no rows, and before mending 1" in " ".join(text.split())
    assert {one: kept[one].gold_answer for one in kept} == {"When?": "2024-12-31", "Whose?": "Ann"}
    assert "mended: SQLite answers 0, and before mending 2" in " ".join(text.split())
    assert "import the mended file with it" in text


def test_without_the_option_it_is_said_and_nothing_changes(home):
    asked = write_questions(home / "q.jsonl", [ASKED[0], ASKED[3]])
    text = imported("sqlite", "own.db", "--questions", asked, "--out", "out")
    assert "own.db is copied as it is; with --mend, orders.Order Date is read as dates" in text
    copy = (home / "out/databases/own/own.sqlite").read_bytes()
    assert copy == (home / "own.db").read_bytes()


def test_a_database_that_needs_nothing_gets_no_note(tmp_path):
    make_database(tmp_path / "own.db")
    assert mend(tmp_path / "own.db", write=False).changes == []
    assert mend(tmp_path / "own.db", write=True).changes == []


def test_what_stands_for_no_date_is_null(tmp_path):
    path = make_database(
        tmp_path / "own.db",
        "CREATE TABLE t (d DATE, s TEXT);"
        "INSERT INTO t VALUES ('2024-01-05', ''), ('', 'x'), ('n/a', 'y'), (NULL, 'y');",
    )
    assert mend(path, write=True).changes == ["t.d has NULL for '' and 'n/a'"]
    assert query(path, "SELECT d, s FROM t") == [
        ("2024-01-05", ""), (None, "x"), (None, "y"), (None, "y")
    ]  # fmt: skip


@pytest.mark.parametrize("strict", ["", "STRICT"])
def test_columns_of_a_row_are_read_from_the_texts_that_it_had(tmp_path, strict):
    path = make_database(
        tmp_path / "own.db",
        f"CREATE TABLE t (area TEXT, people TEXT, paid TEXT, d TEXT) {strict};"
        "INSERT INTO t VALUES ('405,02', '1.085.000', 'yes', '31.12.2024'),"
        "('9,30', '126.000', 'no', '01.02.2025'), (NULL, '12', NULL, NULL);"
        "CREATE TABLE u (price TEXT, pieces TEXT);"
        "INSERT INTO u VALUES ('1,25', '1.000'), ('0,40', '25.000');"
        "CREATE VIEW paying AS SELECT area FROM t WHERE paid = 'yes';"
        "CREATE VIEW costly AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        "SELECT max(i) FROM n;"
        "CREATE VIEW large AS SELECT area FROM t WHERE people > 126000;",
    )
    said = [one.partition(" ")[0] for one in mend(path, write=False).changes]
    found = mend(path, write=True)
    assert said == ["t.area", "t.people", "t.paid", "t.d", "u.price", "u.pieces"]
    assert query(path, "SELECT * FROM t") == [
        (405.02, 1085000, 1, "2024-12-31"), (9.3, 126000, 0, "2025-02-01"), (None, 12, None, None)
    ]  # fmt: skip
    assert query(path, "SELECT * FROM u") == [(1.25, 1000), (0.4, 25000)]
    assert found.problems == ["the view paying has no rows now: it compares cells as they were"]


@pytest.mark.parametrize(
    ("declared", "cells", "why"),
    [
        ("TEXT CHECK (d LIKE '%.%')", ["31.12.2024"], "CHECK"),
        ("TEXT NOT NULL", ["1,50", "2,25", "n/a"], "NOT NULL"),
    ],
)
def test_what_a_constraint_forbids_is_a_problem(tmp_path, declared, cells, why):
    rows = ", ".join(f"('{cell}')" for cell in cells)
    script = f"CREATE TABLE t (d {declared}); INSERT INTO t VALUES {rows};"
    path = make_database(tmp_path / "own.db", script)
    found = mend(path, write=True)
    assert f"t.d keeps its texts: {why}" in found.problems[0]
    assert not found.changes
    assert query(path, "SELECT d FROM t") == [(cell,) for cell in cells]
    assert query(path, "SELECT type FROM pragma_table_info('t')") == [("TEXT",)]


def test_the_option_of_another_source_is_refused(home):
    assert run_import("sqlite", "own.db", "--skip-bad-rows")[0] == 2
    assert run_import("csv", ".", "--mend")[0] == 2
    assert "--mend" in run("import", "sqlite", "--help")[1]
    assert run_import("postgres", "postgresql:///shop", "--more")[0] == 2


def test_made_questions_use_dates_once_they_are_dates(home):
    rows = ", ".join(
        f"({i}, 'S{i % 4}', '{i % 28 + 1:02}.{i % 12 + 1:02}.2024')" for i in range(90)
    )
    make_database(
        home / "visits.db",
        f"CREATE TABLE visit (id INTEGER PRIMARY KEY, shop TEXT, seen_on TEXT);"
        f"INSERT INTO visit VALUES {rows};",
    )
    status, text = run("questions", "visits.db", "--count", 40, "--out", "raw")
    assert status == 0
    assert (
        "visits: not asked of: dates that are not all in ISO's form or NULL ('import sqlite" in text
    )
    assert "rewrites them): visit.seen_on" in text
    assert "visits: not asked of: ids: visit.id" in text
    imported("sqlite", "visits.db", "--mend", "--out", "out")
    path = "out/databases/visits/visits.sqlite"
    assert run("questions", path, "--count", 40, "--out", "made")[0] == 0
    made = json.loads((home / "made/questions/questions_train.json").read_text())
    dated = [one for one in made if "seen_on" in one["gold_sql"]]
    assert len(dated) > len(made) / 5
    assert any("'2024-" in one["gold_sql"] for one in dated)


@pytest.mark.parametrize("first", ["NULL", "''"])
def test_rows_behind_the_first_ones_decide_too(tmp_path, first):
    rows = ", ".join([f"({first})"] * SAMPLE)
    script = f"CREATE TABLE t (d TEXT); INSERT INTO t VALUES {rows}, ('31.12.2024');"
    [change] = mend(make_database(tmp_path / "own.db", script), write=True).changes
    assert "t.d is read as dates: '31.12.2024' is '2024-12-31'" in change


def test_codes_keep_their_texts(tmp_path):
    path = make_database(
        tmp_path / "own.db",
        "CREATE TABLE t (phone TEXT, mobile TEXT); INSERT INTO t VALUES ('5551234567', '5');",
    )
    assert [change.partition(":")[0] for change in mend(path, write=True).changes] == [
        "t.phone stays text",
        "t.mobile is read as numbers, which were text",
    ]


def test_a_column_with_the_name_of_another_tables_key_keeps_its_cells(tmp_path):
    path = make_database(
        tmp_path / "own.db",
        "CREATE TABLE calendar (day INTEGER PRIMARY KEY); INSERT INTO calendar VALUES (20240101);"
        "CREATE TABLE sale (day INTEGER); INSERT INTO sale VALUES (20240101);",
    )
    assert mend(path, write=True).changes == []
    assert query(path, "SELECT count(*) FROM sale JOIN calendar USING (day)") == [(1,)]


def test_a_name_has_one_new_name_in_all_tables(tmp_path):
    path = make_database(
        tmp_path / "own.db",
        'CREATE TABLE a ("Total EUR" INTEGER, Total_EUR INTEGER); INSERT INTO a VALUES (6, 9);'
        'CREATE TABLE b ("total eur" INTEGER, TOTAL_EUR INTEGER); INSERT INTO b VALUES (3, 8);',
    )
    new = mend(path, write=True).columns["Total EUR"]
    for table, values in (("a", (6, 9)), ("b", (3, 8))):
        assert query(path, f'SELECT "{new}", Total_EUR FROM {table}') == [values]
