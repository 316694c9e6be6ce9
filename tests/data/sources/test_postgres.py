"""A PostgreSQL database becomes a SQLite one, from a server's URL."""

import getpass
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from data.sources.postgres import database_name
from shared.dataset import database_path
from tests.data.sources.importing import imported, kept_questions, query, refused, write_questions

SHOP = r"""
CREATE SCHEMA sales;
CREATE TYPE mood AS ENUM ('happy', 'sad');
CREATE DOMAIN year AS integer CHECK (VALUE > 1900);
CREATE TABLE customer (
    id serial PRIMARY KEY, name varchar(80) NOT NULL, mood mood, active boolean, born date,
    joined timestamptz, born_year year, note text, photo bytea, tags text[],
    "Odd Name" numeric(10, 2), code numeric(12), ratio double precision
);
CREATE VIEW "my (own) view" AS SELECT * FROM customer;
CREATE TABLE empty_table (x integer, y text, PRIMARY KEY (x, y));
CREATE TABLE log (id integer, at date NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE log_2023 PARTITION OF log FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
CREATE TABLE log_2024 PARTITION OF log FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
CREATE TABLE sales.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id integer REFERENCES customer (id), placed timestamp, price numeric, qty integer,
    total numeric GENERATED ALWAYS AS (price * qty) STORED
);
CREATE TABLE sales.log (id integer);
CREATE TABLE long (id numeric(20) PRIMARY KEY, n numeric(30));
INSERT INTO customer VALUES
    (1, 'Ann', 'happy', true, '1990-05-01', '2024-01-02 03:04:05+00', 1990,
     E'two\nlines\tand a tab \\ backslash; semicolon', '\xdeadbeef', '{a,"b c"}', 12.50,
     123456789012, 1.5),
    (2, 'Bo''b; O"x', 'sad', false, NULL, '2024-06-02 03:04:05.25+00', NULL, '', NULL, NULL, NULL,
     NULL, 'NaN'),
    (3, 'Éva', NULL, NULL, '2001-12-31', NULL, 2001, '\N', NULL, '{}', -0.01, 7, -2.5);
INSERT INTO log VALUES (1, '2023-06-01'), (2, '2024-06-01'), (3, '2024-07-01');
INSERT INTO sales.orders (customer_id, placed, price, qty)
    SELECT n % 3 + 1, timestamp '2024-01-01' + n * interval '1 hour', n * 1.25, n % 4 + 1
    FROM generate_series(1, 10) n;
INSERT INTO long VALUES (9, 9), (10, 'NaN'), (9223372036854775807, -1),
    (18446744073709551615, 123456789012345678901234567890), (11, 10);
"""
CUSTOMERS = [
    (
        1, "Ann", "happy", 1, "1990-05-01", "2024-01-02 03:04:05", 1990,
        "two\nlines\tand a tab \\ backslash; semicolon", b"\xde\xad\xbe\xef", '{a,"b c"}', 12.5,
        123456789012, 1.5,
    ),
    (
        2, "Bo'b; O\"x", "sad", 0, None, "2024-06-02 03:04:05.25", None, "", None, None, None,
        None, None,
    ),
    (3, "Éva", None, None, "2001-12-31", None, 2001, "\\N", None, "{}", -0.01, 7, -2.5),
]  # fmt: skip
QUESTIONS = [
    ("How many orders are there?", "SELECT count(*) FROM sales.orders"),
    ("How many customers are active?", "SELECT count(*) FROM customer WHERE active"),
    ("Whose name begins with an?", "SELECT name FROM public.customer WHERE name ILIKE 'an%'"),
    ("What is the highest id of an order?", "SELECT max(id)::int FROM sales.orders"),
    ("Which log entries are of 2024?", "SELECT id FROM public_log WHERE at >= '2024-01-01'"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a server's first database: that of POSTGRES_URL, or of one that is started."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'")
    if url := os.environ.get("POSTGRES_URL"):
        yield url
        return
    if shutil.which("initdb") is None or shutil.which("psql") is None:
        pytest.skip("no POSTGRES_URL, and PostgreSQL is not installed")
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        if subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode:
            pytest.skip("no user postgres to run a server as")
        as_user = ["runuser", "-u", "postgres", "--"]
    name = "postgres" if as_user else getpass.getuser()
    with TemporaryDirectory(prefix="sqlenv-pg-") as folder:  # a socket's path must be short
        if as_user:
            shutil.chown(folder, name)
        data = f"{folder}/data"
        quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder}
        made = ["initdb", "-D", data, "-A", "trust", "-U", name, "-E", "UTF8"]
        subprocess.run([*as_user, *made], **quiet)
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        control = [*as_user, "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log"]
        subprocess.run([*control, "-o", options, "start"], **quiet)
        try:
            yield f"postgresql://{name}@/postgres?host={folder}"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **quiet)


@contextmanager
def made(server: str, script: str) -> Iterator[str]:
    import psycopg

    name = f"sqlenv_{uuid.uuid4().hex[:12]}"
    path, mark, rest = server.partition("?")
    url = f"{path.rpartition('/')[0]}/{name}{mark}{rest}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        with psycopg.connect(url) as connection:
            connection.execute(script)
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} (FORCE)")


@pytest.fixture(scope="module")
def url(server: str) -> Iterator[str]:
    with made(server, SHOP) as url:
        yield url


def test_a_database_is_copied(url, tmp_path):
    text = imported("postgres", url, "--out", tmp_path / "out")
    path = database_path(tmp_path / "out", database_name(url))
    assert query(path, "SELECT * FROM customer") == CUSTOMERS
    assert query(path, "SELECT count(*), round(sum(price), 6), typeof(price) FROM orders") == [
        (10, 68.75, "real")
    ]
    assert query(path, "SELECT sum(total <> price * qty) FROM orders") == [(0,)]
    # the rows of the partitions are the table's
    assert query(path, "SELECT * FROM public_log") == [
        (1, "2023-06-01"), (2, "2024-06-01"), (3, "2024-07-01"),
    ]  # fmt: skip
    tables = query(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    names = ["customer", "empty_table", "long", "orders", "public_log", "sales_log"]
    assert [name for (name,) in tables] == names
    reference = query(path, "PRAGMA foreign_key_list(orders)")[0]
    assert reference[2:5] == ("customer", "customer_id", "id")
    keys = "SELECT name FROM pragma_table_info('empty_table') WHERE pk ORDER BY pk"
    assert query(path, keys) == [("x",), ("y",)]
    assert query(path, "SELECT count(*) FROM customer WHERE strftime('%H', joined) = '03'") == [
        (2,)
    ]
    for line in ("Odd Name REAL, code INTEGER",):
        assert line in " ".join(text.replace("│", " ").split())


def test_golds_in_postgresqls_dialect_are_translated(url, tmp_path):
    questions = write_questions(tmp_path / "q.jsonl", QUESTIONS)
    args = ("--questions", questions, "--out", tmp_path / "out")
    text = imported("postgres", url, *args)
    assert "translated to SQLite: 3 golds; each answers as its own database does" in text
    found = kept_questions(tmp_path / "out")
    assert found[QUESTIONS[0][0]].gold_sql == "SELECT COUNT(*) FROM orders"
    assert [found[text].gold_answer for text, _ in QUESTIONS] == [10, 1, "Ann", 10, [2, 3]]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("my shop.sql", "restore a dump with psql or pg_restore"),
        ("postgresql://ann:secret@[::1/shop", "malformed URL: expected postgresql://USER@HOST"),
        ("postgresql://ann:secret@localhost:1/shop", "cannot copy postgresql://localhost:1/shop: "),
    ],
)
def test_a_bad_url_is_one_error_without_its_password(tmp_path, source, message):
    text = refused("postgres", source, "--out", tmp_path / "out")
    assert message in text
    assert "secret" not in text
    assert not (tmp_path / "out").exists()


def test_a_url_without_the_package_is_one_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    text = refused("postgres", "postgresql://ann@host/shop", "--out", tmp_path / "out")
    assert "pip install 'psycopg[binary]'" in text


def test_golds_answer_as_postgresql_does(server, tmp_path):
    """LIKE's letter case, NULLs, booleans, enums, intervals and the rest: right, or dropped."""
    folder = Path(__file__).parent / "files/24-postgres"
    script = (folder / "odd.sql").read_text(encoding="utf-8")
    script += "CREATE TABLE fl (id int, nm text, v int);"
    script += "INSERT INTO fl VALUES (1, 'apple', 5), (2, 'Avocado', NULL);"
    with made(server, script) as url:
        asked = ("--questions", folder / "questions.jsonl", "--out", tmp_path / "out")
        text = imported("postgres", url, *asked)
    answers = {text: one.gold_answer for text, one in kept_questions(tmp_path / "out").items()}
    right = {
        "How many with ok mood?": 1, "Year of ts of 1?": 2024, "Share?": 0.5, "Days since?": 365,
        "Month trunc?": "2024-12-01 00:00:00", "interval?": 1, "true count?": 1, "bool as text?": 1,
        "How many start with a (LIKE)?": 1, "Highest v with nulls?": "Avocado", "Any?": 2,
        "Left?": "A", "to_char?": "2024-12", "like case?": 0,
    }  # fmt: skip
    assert {question: answers[question] for question in right} == right
    assert not {"nulls last?", "now?", "Age?", "power?"} & set(answers)
    assert "note: public.empty_table has no column, and is left out" in text


def test_a_gold_that_only_sqlite_answers_otherwise_is_dropped(url, tmp_path):
    other = "SELECT count(*) FROM customer WHERE name || 1 LIKE lower('ANN1')"
    questions = write_questions(tmp_path / "q.jsonl", [*QUESTIONS[:2], ("Ann?", other)])
    text = imported("postgres", url, "--questions", questions, "--out", tmp_path / "out")
    assert "dialect: SQLite answers 1, and its own database 0" in text
