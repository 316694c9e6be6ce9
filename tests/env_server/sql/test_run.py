"""One job on one connection: rows, errors with hints, cuts, broken data, virtual tables, trim()."""

from collections.abc import Iterator
from itertools import product

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.sql import JobKind, SqlJob, SqlLimits
from env_server.sql.sandbox import is_virtual_table, register_trim
from tests.conftest import SHOP, make_database
from tests.env_server.sql.conftest import NUMBERS, query


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT name FROM customers WHERE city = 'Oslo' ORDER BY name", [("Ann",), ("Zoë",)]),
        ("SELECT 1;", [(1,)]),
        ("  ;; SELECT 1 ; -- done", [(1,)]),
        ("SELECT 1 /* unfinished", [(1,)]),
        ("VALUES (1, 'a')", [(1, "a")]),
        ('SELECT count(*) FROM orders WHERE note = "gift"', [(2,)]),
        ("WITH t AS (SELECT 1 UNION SELECT 2) SELECT count(*) FROM t", [(2,)]),
        ("SELECT main.customers.city FROM main.customers LIMIT 1", [("Oslo",)]),
        ("SELECT rowid FROM products LIMIT 1", [(1,)]),
        ("SELECT 9e999, x'0041', NULL, 2.0, -9223372036854775808",
         [(float("inf"), b"\0A", None, 2.0, -(2**63))]),
        ("SELECT rank() OVER (ORDER BY price) FROM products LIMIT 1", [(1,)]),
        ("SELECT upper(title), round(price), substr(title, 2) FROM products LIMIT 1",
         [("LAMP", 25.0, "amp")]),
        ("SELECT date('now'), datetime(), CURRENT_TIMESTAMP",
         [("2024-01-01", *["2024-01-01 00:00:00"] * 2)]),
        ("SELECT strftime('%s', 'no' || 'w'), julianday('now')", [("1704067200", 2460310.5)]),
    ],
)  # fmt: skip
def test_a_plain_statement_is_answered(runner, shop, sql, rows):
    result = query(runner, shop, sql)
    assert (result.error, result.rows) == (None, rows)


@pytest.mark.parametrize(
    ("sql", "code", "remedy"),
    [
        ("SELECT * FROM customer", "no_such_table", "; the tables are customers, products, orders"),
        ("SELECT * FROM sqlite_master", "sql_denied", "DESCRIBE"),
        ("SELECT random()", "sql_denied", "random()"),
        ("SELECT median(price) FROM products", "sql_denied", "use ORDER BY with LIMIT 1 OFFSET n"),
        ("SELECT 1; SELECT 2", "sql_denied", "one SELECT"),
        ("SELECT '\ud800'", "sql_error", "not Unicode"),
    ],
)
def test_errors_name_the_remedy(runner, shop, sql, code, remedy):
    result = query(runner, shop, sql)
    assert (result.error_code, remedy in str(result.error)) == (code, True)


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT nam FROM customers", "customers(customer_id, name, city, joined_on)"),
        ("SELECT T2.nam FROM Orders AS T1 JOIN CUSTOMERS AS T2 ON T1.customer_id = T2.customer_id",
         "orders(order_id, customer_id, product_id, quantity, note), "
         "customers(customer_id, name, city, joined_on)"),
    ],
)  # fmt: skip
def test_an_unknown_column_is_shown_the_columns_of_the_querys_tables(runner, shop, sql, hint):
    result = query(runner, shop, sql)
    name, columns = str(result.error).split("; the columns are ")
    assert (name, columns) == (f"no such column: {'T2.' * ('T2' in sql)}nam", hint)
    assert result.error_code == "sql_error"


def test_columns_are_named_in_part_of_a_wide_table_and_not_of_unnamed_tables(runner, tmp_path):
    wide = ", ".join(f"c{n}" for n in range(200))
    path = make_database(tmp_path / "wide.sqlite", f'CREATE TABLE "a b" ({wide});')
    assert query(runner, path, "SELECT x").error == "no such column: x"
    error = str(query(runner, path, 'SELECT x FROM "a b"').error)
    assert error.startswith('no such column: x; the columns are "a b"(c0, c1, ')
    assert error.endswith(", c99, ...)")


def test_more_rows_than_shown_are_reported(runner, shop):
    twenty_five = "SELECT a.name FROM customers a, customers b"
    result = query(runner, shop, twenty_five)
    assert (len(result.rows), result.truncated) == (20, True)
    assert not query(runner, shop, twenty_five + " LIMIT 20").truncated
    assert not query(runner, shop, twenty_five, 25).truncated
    assert query(runner, shop, twenty_five, 24).truncated


@pytest.mark.parametrize("kind", ["TEXT", "BLOB"])
def test_a_result_is_cut_where_its_cells_are_too_long(runner, shop, kind):
    cell = f"CAST(printf('%.*c', 49000, 'x') AS {kind})"
    result = query(runner, shop, f"SELECT {cell} FROM customers a, customers b, customers c", 100)
    assert result.truncated
    assert 19 <= len(result.rows) <= 21  # of 49 kB each, under 1 MB


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", False),
        ("WITH t AS (SELECT 1) SELECT count(*) FROM t", False),
        ("SELECT 5 FROM orders LIMIT 1", False),
        ("SELECT 5, 'a' FROM customers, main.orders", False),
        ("SELECT max(5), min('a'), avg(2) FROM orders", False),
        ("SELECT 5 FROM orders o WHERE EXISTS (SELECT 1 FROM customers)", False),
        ("SELECT 5 FROM orders JOIN products USING (product_id)", False),
        ("SELECT count(5) FROM (SELECT 5)", False),
        ("SELECT 5 FROM cheap", False),
        ("SELECT note FROM orders", True),
        ("SELECT * FROM orders", True),
        ("SELECT 5 FROM orders WHERE quantity > 2", True),
        ("SELECT rowid FROM orders", True),
        ("SELECT count(*) FROM ORDERS", True),
        ("SELECT sum(1), total(1) FROM orders", True),
        ("SELECT row_number() OVER () FROM orders", True),
        ("SELECT count(*) FROM orders JOIN Products USING (product_id)", True),
        ("SELECT product_id FROM orders NATURAL JOIN products", True),
        ("SELECT count(*) FROM cheap", True),
        ("SELECT title FROM cheap", True),
        ("SELECT (SELECT count(*) FROM orders)", True),
        ("WITH n(i) AS (SELECT quantity FROM orders) SELECT max(i) FROM n", True),
        ("WITH orders AS (SELECT quantity AS i FROM main.orders) SELECT max(i) FROM orders", True),
        ("SELECT max(i) FROM (SELECT quantity AS i FROM orders) n", True),
        ("SELECT max(title) FROM (SELECT * FROM cheap)", True),
    ],
)
def test_a_statement_reads_data_if_it_reads_a_column_or_counts_rows(runner, tmp_path, sql, reads):
    view = "CREATE VIEW cheap AS SELECT title FROM products WHERE price < 30;"
    result = query(runner, make_database(tmp_path / "shop.sqlite", SHOP + view), sql)
    assert (result.error, result.reads_data) == (None, reads)


def test_a_gold_query_is_jailed_too_and_returns_more_rows(runner, shop):
    assert runner.run(SqlJob(JobKind.GOLD, shop, "DELETE FROM orders")).error_code == "sql_denied"
    many = "SELECT 1 FROM customers a, customers b, customers c"
    gold = runner.run(SqlJob(JobKind.GOLD, shop, many))
    assert (len(gold.rows), gold.truncated) == (125, False)


def test_text_that_is_not_utf8_is_shown_as_far_as_it_can_be_read(runner, tmp_path):
    values = "(1, CAST(x'4DFC6C' AS TEXT)), (2.5, x'FF00'), (NULL, 'plain')"
    script = f"CREATE TABLE q (a, b); INSERT INTO q VALUES {values};"  # its own query is called q_
    path = make_database(tmp_path / "broken.sqlite", script)
    result = query(runner, path, "SELECT a, b FROM q -- all")
    assert result.columns == ["a", "b"]
    assert result.rows == [(1, "M\ufffdl"), (2.5, b"\xff\0"), (None, "plain")]
    assert query(runner, path, "SELECT b FROM q ORDER BY a DESC LIMIT 1;").rows == [(b"\xff\0",)]
    assert runner.run(SqlJob(JobKind.SAMPLE, str(path), "q")).rows == result.rows
    assert query(runner, path, "SELECT a, b FROM q /* all").rows == result.rows


def test_wide_rows_of_text_that_is_not_utf8_are_shown(runner, tmp_path):
    """Casting each column makes the statement longer than an agent's may be."""
    columns = [f"a_long_name_of_a_column_{i:03}" for i in range(199)]
    values = ", ".join(["CAST(x'4DFC6C' AS TEXT)"] * len(columns))
    path = make_database(
        tmp_path / "wide.sqlite",
        f"CREATE TABLE t ({', '.join(columns)}); INSERT INTO t VALUES ({values});",
    )
    sql = "SELECT " + ", ".join(f"t.{name} AS {name}" for name in columns) + " FROM t"
    longest = sql + " " * (SqlLimits().max_sql_bytes - len(sql))
    for statement in ("SELECT * FROM t", longest):
        result = query(runner, path, statement)
        assert (result.error, result.columns) == (None, columns)
        assert result.rows == [("M\ufffdl",) * len(columns)]
    assert query(runner, path, longest + " ").error_code == "sql_budget"


@pytest.mark.parametrize("text", ["i", "CAST(x'4DFC6C' AS TEXT)"], ids=["plain", "not UTF-8"])
@pytest.mark.parametrize(("columns", "most"), [(1, 1_000), (11, 909), (200, 50)])
def test_as_many_rows_are_read_whatever_the_caller_needs(runner, shop, text, columns, most):
    """A QUERY's error in row k would else show how many rows the gold has."""
    needed = (1, 20, 21, most - 1, most, 1_000)
    for bad_row in (2, most + 1, most + 2, 0):
        cells = ", ".join([f"CASE i WHEN {bad_row} THEN abs(-1 << 63) ELSE {text} END"] * columns)
        sql = f"{NUMBERS} SELECT {cells} FROM n"
        results = [query(runner, shop, sql, max_rows) for max_rows in needed]
        if 0 < bad_row <= most + 1:
            assert {result.error for result in results} == {"integer overflow"}
        else:
            assert [(one.error, one.truncated) for one in results] == [(None, True)] * len(needed)
            assert [len(one.rows) for one in results] == [min(most, rows) for rows in needed]


def test_a_view_of_the_catalogue_shows_nothing_of_it(runner, tmp_path):
    script = "CREATE TABLE t (secret); CREATE VIEW v AS SELECT sql FROM sqlite_schema;"
    path = make_database(tmp_path / "view.sqlite", script)
    assert query(runner, path, "SELECT * FROM v").error_code == "sql_denied"
    sample = runner.run(SqlJob(JobKind.SAMPLE, str(path), "v"))
    assert (sample.rows, sample.error_code) == ([], "sql_denied")


def test_names_are_safe_whatever_they_hold(runner, tmp_path):
    path = make_database(
        tmp_path / "odd.sqlite",
        """CREATE TABLE "we""ird; DROP TABLE x --" ("a b" TEXT, 'select' INT);
        INSERT INTO "we""ird; DROP TABLE x --" VALUES ('x', 1); CREATE TABLE "it's" (x);""",
    )
    names = [name for (name,) in runner.run(SqlJob(JobKind.TABLES, str(path))).rows]
    assert names == ['we"ird; DROP TABLE x --', "it's"]
    for name in names:
        assert runner.run(SqlJob(JobKind.DESCRIBE, str(path), str(name))).error is None
        assert runner.run(SqlJob(JobKind.SAMPLE, str(path), str(name))).error is None


def test_describe_gives_columns_types_keys_and_rows(runner, shop):
    result = runner.run(SqlJob(JobKind.DESCRIBE, shop, "orders"))
    assert result.row_count == 6
    assert result.rows == [
        ("order_id", "INTEGER", 1, None),
        ("customer_id", "INTEGER", 0, "customers.customer_id"),
        ("product_id", "INTEGER", 0, "products.product_id"),  # its REFERENCES names no column
        ("quantity", "INTEGER", 0, None),
        ("note", "", 0, None),
    ]
    assert runner.run(SqlJob(JobKind.DESCRIBE, shop, "nope")).error_code == "no_such_table"


def test_a_sample_is_in_stored_order(runner, tmp_path):
    script = "CREATE TABLE t (x); CREATE INDEX by_x ON t (x); ANALYZE;"
    script += "INSERT INTO t VALUES (3), (1), (2), (9), (8), (7); ANALYZE;"
    path = make_database(tmp_path / "indexed.sqlite", script)
    sample = runner.run(SqlJob(JobKind.SAMPLE, str(path), "t"))
    assert (sample.rows, sample.truncated) == ([(3,), (1,), (2,), (9,), (8,)], False)
    # ANALYZE made sqlite_stat1, which is not one of the data's tables.
    assert runner.run(SqlJob(JobKind.TABLES, str(path))).rows == [("t",)]


@pytest.mark.parametrize("content", [b"", b"not a database" * 100, None])
def test_a_broken_file_is_the_datas_fault(runner, tmp_path, content):
    path = tmp_path / "broken.sqlite"
    if content is not None:
        path.write_bytes(content)
    result = query(runner, path, "SELECT * FROM customers")
    # an empty file is an empty database
    assert result.error_code == ("no_such_table" if content == b"" else "db_error")
    assert str(tmp_path) not in str(result.error)


# -- virtual tables and trim()

# Eponymous virtual tables of SQLite's sources, in this build or not.
NAMES = [
    "bytecode", "carray", "completion", "dbstat", "fsdir", "fts3tokenize", "generate_series",
    "json_each", "json_tree", "jsonb_each", "jsonb_tree", "pragma_database_list",
    "pragma_module_list", "sqlite_dbpage", "sqlite_schema", "sqlite_stmt", "tables_used",
    "wholenumber",
]  # fmt: skip
WAYS = [
    "SELECT * FROM {}",
    "SELECT count(*) FROM {}",
    "SELECT 1 FROM {}('[1]')",
    "WITH g(value) AS (VALUES (1)) SELECT g.value FROM g NATURAL JOIN {}",
    "WITH g(value, name) AS (VALUES (1, 2)) SELECT g.value FROM g JOIN {}('[1]') USING (value)",
    "WITH g(value, name) AS (VALUES (1, 2)) SELECT 1 FROM g JOIN {} USING (name)",
    "SELECT (SELECT count(*) FROM main.{})",
    "SELECT 1 WHERE 1 IN {}",
]
TEXT = st.text(alphabet="ab é日\U0001f600\0\t 0.-", max_size=12)
VALUES = st.one_of(
    st.none(),
    TEXT,
    TEXT.map(str.encode),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=6),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_virtual_table_cannot_be_read(runner, shop, name):
    for way, spelt in product(WAYS, (name, name.upper(), f'"{name}"')):
        result = query(runner, shop, way.format(spelt))
        assert result.rows == []
        assert result.error_code in ("sql_denied", "no_such_table", "sql_error")


def test_every_module_that_needs_no_create_is_seen():
    connection = apsw.Connection(":memory:")
    connection.execute("SELECT * FROM json_each('[]')").close()
    modules = [name for (name,) in connection.execute("PRAGMA module_list")]
    assert "json_each" in modules
    for name in modules:
        try:
            connection.execute(f'EXPLAIN SELECT * FROM "{name}"').close()
        except apsw.SQLError:
            continue
        assert is_virtual_table(name)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT value FROM carray", [(7,)]),
        ("SELECT a.value FROM carray a JOIN carray USING (value)", [(7,)]),
        ("SELECT count(*) FROM carray", [(1,)]),
        ("WITH t AS (VALUES (1), (2)) SELECT count(*) FROM t", [(2,)]),
    ],
)
def test_a_table_of_such_a_name_can_be_read(runner, tmp_path, sql, rows):
    script = "CREATE TABLE carray (value); INSERT INTO carray VALUES (7);"
    assert query(runner, make_database(tmp_path / "d.sqlite", script), sql).rows == rows


@pytest.fixture(scope="module")
def connections() -> Iterator[tuple[apsw.Connection, apsw.Connection]]:
    ours, sqlites = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    register_trim(ours)
    yield ours, sqlites
    ours.close()
    sqlites.close()


@given(value=VALUES, characters=VALUES)
@pytest.mark.parametrize("name", ["trim", "ltrim", "rtrim"])
def test_trim_is_sqlites(connections, name, value, characters):
    sql = f"SELECT r, typeof(r) FROM (SELECT {name}(?, ?) AS r)"
    ours, sqlites = (connection.execute(sql, (value, characters)).get for connection in connections)
    assert ours == sqlites
