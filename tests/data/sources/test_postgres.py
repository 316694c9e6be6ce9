"""A PostgreSQL database becomes a SQLite one: from a dump of pg_dump, and from a server's URL."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from data.sources.pg_dump import copy_cells, read_data, read_schema
from data.sources.pg_tables import value_of
from data.sources.postgres import database_name, shown
from shared.dataset import database_path, load_splits
from tests.data.sources.importing import files_of, run_import, write_questions

HERE = Path(__file__).parent
COPY, INSERTS = HERE / "shop_copy.sql", HERE / "shop_inserts.sql"  # pg_dump, pg_dump --inserts
POSTGRES_URL = os.environ.get("POSTGRES_URL")  # of a server on which databases may be made

CUSTOMERS = [
    (
        1, "Ann", "happy", 1, "1990-05-01", "2024-01-02 03:04:05+00:00", 1990,
        "two\nlines\tand a tab \\ backslash; semicolon", b"\xde\xad\xbe\xef", '{a,"b c"}', 12.5,
        123456789012, 1.5,
    ),
    (
        2, "Bo'b; O\"x", "sad", 0, None, "2024-06-02 03:04:05.25+00:00", None, "", None, None, None,
        None, None,
    ),
    (3, "Éva", None, None, "2001-12-31", None, 2001, "\\N", None, "{}", -0.01, 7, -2.5),
]  # fmt: skip
QUESTIONS = [
    ("How many orders are there?", "SELECT count(*) FROM sales.orders"),
    ("How many customers are active?", "SELECT count(*) FROM customer WHERE active"),
    ("Whose name begins with an?", "SELECT name FROM public.customer WHERE name ILIKE 'an%'"),
    ("What is the highest id of an order?", "SELECT max(id)::int FROM sales.orders"),
    ("Which log entries are of 2024?", "SELECT id FROM log WHERE at >= '2024-01-01'"),
]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(path))
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


@pytest.mark.parametrize("dump", [COPY, INSERTS], ids=["copy", "inserts"])
def test_a_dump_becomes_a_database(dump: Path, tmp_path: Path) -> None:
    status, text = run_import("postgres", dump, "--out", tmp_path / "out")
    assert status == 0, text
    path = database_path(tmp_path / "out", dump.stem)
    assert rows(path, "SELECT * FROM customer") == CUSTOMERS
    assert rows(path, "SELECT count(*), round(sum(price), 6), typeof(price) FROM orders") == [
        (10, 68.75, "real")
    ]
    # the rows of the partitions are the table's
    assert rows(path, "SELECT * FROM log") == [
        (1, "2023-06-01"), (2, "2024-06-01"), (3, "2024-07-01"),
    ]  # fmt: skip
    tables = rows(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("customer",), ("empty_table",), ("log",), ("orders",)]
    reference = rows(path, "PRAGMA foreign_key_list(orders)")[0]
    assert reference[2:5] == ("customer", "customer_id", "id")
    keys = "SELECT name FROM pragma_table_info('empty_table') WHERE pk ORDER BY pk"
    assert rows(path, keys) == [("x",), ("y",)]
    assert rows(path, "SELECT count(*) FROM customer WHERE strftime('%H', joined) = '03'") == [(2,)]
    for line in (
        "Odd Name REAL (DECIMAL(10, 2)), code INTEGER (DECIMAL(12, 0))",
        "problem: view public.happy is not copied",
        "problem: orders.total is computed by PostgreSQL: it is left out",
        "problem: table empty_table has no rows",
        "problem: customer.photo holds BLOBs",
    ):
        assert line in " ".join(text.replace("│", " ").split())


def test_golds_in_postgresqls_dialect_are_translated(tmp_path: Path) -> None:
    questions = write_questions(tmp_path / "q.jsonl", QUESTIONS)
    args = ("--questions", questions, "--out", tmp_path / "out")
    status, text = run_import("postgres", COPY, *args)
    assert status == 0, text
    assert "translated to SQLite: 3 golds; read them" in text
    splits = load_splits(tmp_path / "out")
    found = {one.question_text: one for many in splits.values() for one in many}
    assert found[QUESTIONS[0][0]].gold_sql == "SELECT COUNT(*) FROM orders"
    assert [found[text].gold_answer for text, _ in QUESTIONS] == [10, 1, "Ann", 10, [2, 3]]


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        ("a\tb", ["a", "b"]),
        ("\\N\t", [None, ""]),
        ("\\\\N\ta\\tb", ["\\N", "a\tb"]),
        ("x\\ny\\\\n\\r\\b\\f\\v", ["x\ny\\n\r\b\f\v"]),
        ("\\x41\\101\\q", ["AAq"]),
    ],
)
def test_the_cells_of_copy(line: str, cells: list[str | None]) -> None:
    assert copy_cells(line) == cells


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("2024-01-01 10:00:00+02", "TIMESTAMP", "2024-01-01 10:00:00+02:00"),
        ("2024-01-01 10:00:00.5-08", "TIMESTAMP", "2024-01-01 10:00:00.5-08:00"),
        ("2024-01-01 10:00:00+05:30", "TIMESTAMP", "2024-01-01 10:00:00+05:30"),
        ("2024-01-01 10:00:00", "TIMESTAMP", "2024-01-01 10:00:00"),
        ("t", "BOOLEAN", 1),
        ("\\x6162", "BLOB", b"ab"),
        ("12", "TEXT", "12"),
        ("-9223372036854775808", "NUMERIC", -(2**63)),
        ("9223372036854775808", "NUMERIC", 2.0**63),
    ],
)
def test_values(text: str, kind: str, value: Any) -> None:
    assert value_of(text, kind) == value


def test_hand_written_statements(tmp_path: Path) -> None:
    dump = tmp_path / "d.sql"
    dump.write_text(
        "/* a comment; */ create table \"T;1\" (id int primary key, \"Name\" text -- why; not\n"
        ", other int references u(id), kind varchar default 'a;b');\n"
        "CREATE TABLE u (id serial, n numeric(30), CONSTRAINT k PRIMARY KEY (id));\n"
        "CREATE TABLE sales.u (id int);\n"
        "INSERT INTO \"T;1\" VALUES (1, E'it\\'s; \\n', -5, 'x'),\n"
        "(2, 'multi\nline; ''q''', NULL, $$y;$$);\n"
        "COPY u FROM stdin;\n7\t123456789012345678901234567890\n\\.\n"
        "INSERT INTO sales.u (id) VALUES (1)"
    )  # fmt: skip
    schema = read_schema(dump)
    assert schema.names() == {
        ("public", "T;1"): "T;1",
        ("public", "u"): "public_u",
        ("sales", "u"): "sales_u",
    }
    table = schema.tables["public", "T;1"]
    assert table.primary_key == ["id"]
    assert table.foreign_keys == [(["other"], ("public", "u"), ["id"])]
    assert schema.tables["public", "u"].columns == {"id": "INTEGER", "n": "NUMERIC"}
    found = [(key, columns, list(rows)) for key, columns, rows in read_data(dump)]
    assert found == [
        (
            ("public", "T;1"),
            [],
            [["1", "it's; \n", "-5", "x"], ["2", "multi\nline; 'q'", None, "y;"]],
        ),
        (("public", "u"), [], [["7", "123456789012345678901234567890"]]),
        (("sales", "u"), ["id"], [["1"]]),
    ]


def test_statements_of_a_functions_body_and_nested_comments_are_no_rows(tmp_path: Path) -> None:
    dump = tmp_path / "d.sql"
    dump.write_text(
        "CREATE TABLE t (x int);\n"
        # as pg_dump writes a function with a body in standard SQL
        "CREATE FUNCTION f(a integer) RETURNS integer\n    LANGUAGE sql\n    BEGIN ATOMIC\n"
        " INSERT INTO t (x)\n   VALUES (91);\n INSERT INTO t (x)\n   VALUES (92);\n"
        " SELECT\n         CASE\n             WHEN (a > 1) THEN 1\n             ELSE 2\n"
        "         END;\n INSERT INTO t (x)\n   VALUES (93);\nEND;\n"
        "/* a; /* nested; */ INSERT INTO t VALUES (94); */\n"
        "COPY t FROM stdin;\n1\n\\.\nINSERT INTO t VALUES (2);\n"
    )
    assert [list(rows) for *_, rows in read_data(dump)] == [[["1"]], [["2"]]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PGDMP\1\2", "is not a plain dump: make one with: pg_restore --file=plain.sql DUMP"),
        (b"\x1f\x8b\0", "is not a plain dump: make one with: gunzip --keep DUMP"),
        (b"SELECT 1;", "has no table: name a plain dump that pg_dump wrote"),
        (b"CREATE TABLE t (x text);\nCOPY t FROM stdin;\nabc\n", "ends in the middle of a table's"),
        (b"--\n-- PostgreSQL database dump\n--\nCREATE TABLE t (x int);\n", "is not complete"),
        (b"\\connect a\nCREATE TABLE t (x int);\n\\connect b\n", "has several databases"),
        (b"CREATE TABLE t (x text);\nCOPY t FROM stdin;\n\xe9\n\\.\n", "pg_dump --encoding=UTF8"),
        (
            b"CREATE TABLE t (x int);\nCOPY t FROM stdin;\nabc\n\\.\n",
            "row 1 of t does not fit the ",
        ),
        (
            b"CREATE TABLE t (x int);\nCOPY t FROM stdin;\n1\t2\n\\.\n",
            "row 1 of t does not fit the ",
        ),
        (
            b'CREATE TABLE t (name text, "Name" text);\n',
            "SQLite cannot hold table t: duplicate column name: Name; rename it in PostgreSQL",
        ),
        (b"CREATE TABLE t (x int);\nCOPY t (y) FROM stdin;\n1\n\\.\n", "have a column 'y'"),
        (
            b"CREATE TABLE t (x int);\nINSERT INTO t VALUES (f(1));\n",
            "the value F(1) is no constant",
        ),
        (b"CREATE TABLE t (x int);\nINSERT INTO t SELECT 1;\n", "dump it with COPY"),
        (None, "no dump at "),
    ],
)
def test_bad_dumps_are_one_error(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "d.sql").write_bytes(content)
    before = files_of(tmp_path)
    status, text = run_import("postgres", tmp_path / "d.sql", "--out", tmp_path / "out")
    assert (status, text.count("\n")) == (1, 1), text
    assert message in text
    assert files_of(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == list(before)


def test_long_numerics_are_numbers_and_keys(tmp_path: Path) -> None:
    dump = tmp_path / "d.sql"
    dump.write_text(
        "CREATE TABLE t (id numeric(20,0), n numeric(30), PRIMARY KEY (id));\n"
        "CREATE TABLE child (t_id bigint);\n"
        "COPY t FROM stdin;\n9\t9\n10\tNaN\n9223372036854775807\t-1\n"
        "18446744073709551615\t123456789012345678901234567890\n"
        "18446744073709551614\t10\n\\.\n"
        "COPY child FROM stdin;\n9\n9223372036854775807\n\\.\n"
    )
    status, text = run_import("postgres", dump, "--out", tmp_path / "out")
    assert status == 0, text
    path = database_path(tmp_path / "out", "d")
    numbers = [(None,), (-1,), (9,), (10,), (1.2345678901234568e29,)]
    assert rows(path, "SELECT n FROM t ORDER BY n") == numbers
    assert rows(path, "SELECT t_id FROM t JOIN child ON id = t_id") == [(9,), (2**63 - 1,)]
    assert rows(path, "SELECT count(DISTINCT id) FROM t") == [(5,)]
    assert text.count("has integers of more than 64 bits: they are rounded") == 1
    assert "problem: t.n has integers" in text


def test_quoted_names_of_what_is_not_copied_are_whole(tmp_path: Path) -> None:
    dump = tmp_path / "d.sql"
    dump.write_text(
        'CREATE VIEW public."my (own) view" AS SELECT 1;\nCREATE VIEW v(a) AS SELECT 1;'
    )
    problems = ['view public."my (own) view" is not copied', "view v is not copied"]
    assert read_schema(dump).problems == problems


def test_tables_that_are_not_understood_are_named(tmp_path: Path) -> None:
    dump = tmp_path / "d.sql"
    dump.write_text(
        "CREATE TABLE p (x int);\nCREATE TABLE c (y int) INHERITS (p);\n"
        "COPY c FROM stdin;\n1\t2\n\\.\nINSERT INTO p VALUES (1);\n"
    )
    status, text = run_import("postgres", dump, "--out", tmp_path / "out")
    assert status == 0
    assert "problem: not understood, so its table or key is left out: CREATE TABLE c" in text
    assert rows(database_path(tmp_path / "out", "d"), "SELECT * FROM p") == [(1,)]


def test_a_url_without_the_package_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    url = "postgresql://ann:secret@localhost/shop"
    status, text = run_import("postgres", url, "--out", tmp_path / "out")
    assert (status, text.count("\n")) == (1, 1)
    assert "needs the package psycopg: pip install 'psycopg[binary]'" in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", ["postgresql://ann:secret@localhost/shop", COPY])
@pytest.mark.parametrize("out", [".", ".."])
def test_the_current_directory_is_not_replaced(
    source: object, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    status, text = run_import("postgres", source, "--out", out, "--force")
    folder = (tmp_path / "here" / out).resolve()
    contained = "contains the current directory: name another directory"
    assert (status, text) == (1, f"error: --out {folder} {contained}\n")


def test_a_malformed_url_is_one_error_without_its_password() -> None:
    status, text = run_import("postgres", "postgresql://ann:secret@[::1/shop")
    assert status == 1
    assert text == "error: malformed URL: expected postgresql://USER@HOST/DATABASE\n"


def test_a_url_is_shown_without_its_password() -> None:
    url = "postgres://ann:secret@host:5432/my%20shop?sslmode=require&password=other"
    assert shown(url) == "postgresql://host:5432/my%20shop"
    assert database_name(url) == "my shop"


@pytest.fixture
def url() -> Iterator[str]:
    """A database made from the dump, on a real server."""
    if POSTGRES_URL is None:
        pytest.skip("POSTGRES_URL is not set: no server to import from")
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    name = f"sqlenv_{uuid.uuid4().hex[:12]}"
    psql = ["psql", "--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1"]
    made = POSTGRES_URL.rpartition("/")[0] + f"/{name}"
    subprocess.run([*psql, POSTGRES_URL, "-c", f"CREATE DATABASE {name}"], check=True)
    try:
        subprocess.run([*psql, made, "-f", COPY], check=True, stdout=subprocess.DEVNULL)
        yield made
    finally:
        subprocess.run([*psql, POSTGRES_URL, "-c", f"DROP DATABASE {name} (FORCE)"], check=True)


def test_a_server_gives_what_its_dump_does(url: str, tmp_path: Path) -> None:
    status, text = run_import("postgres", url, "--out", tmp_path / "url")
    assert status == 0, text
    assert run_import("postgres", COPY, "--out", tmp_path / "dump")[0] == 0
    path = database_path(tmp_path / "url", database_name(url))
    other = database_path(tmp_path / "dump", "shop_copy")
    for query in (
        "SELECT * FROM customer", "SELECT * FROM log", "SELECT * FROM empty_table",
        "SELECT id, customer_id, placed, price, qty FROM orders",
        "SELECT sql FROM sqlite_master WHERE name <> 'orders' ORDER BY name",
    ):  # fmt: skip
        assert rows(path, query) == rows(other, query)
    assert rows(path, "SELECT sum(total <> price * qty) FROM orders") == [(0,)]  # computed there
    assert "problem: view public.happy is not copied" in text


def test_a_servers_error_is_one_line(url: str, tmp_path: Path) -> None:
    status, text = run_import("postgres", f"{url}_absent", "--out", tmp_path / "out")
    assert (status, text.count("\n")) == (1, 1), text
    assert "does not exist; check the URL" in text
