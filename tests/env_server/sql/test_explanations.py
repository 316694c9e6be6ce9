"""What is said beside a result or an error: why it found nothing, what misleads, what to write
instead, and what is in a column. Each with a case in which it must not be said."""

from collections.abc import Iterator

import apsw
import pytest

from env_server.sql import JobKind, SqlJob, SqlLimits, SqlResult
from env_server.sql.describe_values import MAX_ROWS, Value, describe_values
from env_server.sql.jobs import encode_columns
from env_server.sql.misread_texts import TEXT_DATE
from env_server.sql.run import SqlRunner
from tests.conftest import make_database

SCRIPT = """
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, status_cd TEXT, customer_id INT REFERENCES customers (id), sent_at TEXT,
    total REAL, country TEXT, "Unit Price" REAL, "order" INT, weight INT
);
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, country TEXT, nickname TEXT, photo BLOB);
CREATE TABLE "Patient Records" (pid INTEGER PRIMARY KEY, "First Name" TEXT);
CREATE TABLE "Parts Catalog" (part_no TEXT);
CREATE TABLE sizes (größe INT, "2020" INT, "" TEXT, "count(*)" INT);
CREATE VIEW open_orders AS SELECT * FROM orders WHERE status_cd = 'N';
INSERT INTO customers VALUES (1, 'Ann', 'CH', NULL, x'00ff'), (2, 'Bo', 'DE', 'Bob', x'00'),
    (3, 'Cleo', 'CH', NULL, NULL), (4, 'Dan', 'CH', NULL, NULL);
INSERT INTO "Patient Records" VALUES (1, 'Ida');
"""
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT {})"
COUNTRIES = (
    *("Denmark", "Finland", "France", "Germany", "Iceland"),
    *("Italy", "Norway", "Spain", "Sweden", "Switzerland"),
)
ALL = ("empty", "errors", "remarks")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    script = SCRIPT
    for n in range(100):
        sent_at = f"2025-0{1 + n % 9}-{10 + n % 17} 08:15:00"
        row = (n + 1, "CDNP"[n % 4], 1 + n % 4, sent_at, n / 2, COUNTRIES[n % 10], 1.5, n, n % 7)
        script += f"INSERT INTO orders VALUES {row};"
    return str(make_database(tmp_path_factory.mktemp("explained") / "shop.sqlite", script))


@pytest.fixture(scope="module")
def runner() -> Iterator[SqlRunner]:
    with SqlRunner() as runner:
        yield runner


def ask(runner: SqlRunner, path: str, sql: str, explain: tuple[str, ...] = ALL) -> SqlResult:
    return runner.run(SqlJob(JobKind.QUERY, path, sql, 20, explain))


@pytest.mark.parametrize(
    ("condition", "remark"),
    [
        ("status_cd = 'Cancelled'", "status_cd has no 'Cancelled'; it has 'C', 'D', 'N', 'P'"),
        ("'Cancelled' = status_cd", "status_cd has no 'Cancelled'; it has 'C', 'D', 'N', 'P'"),
        ("status_cd = 'c'", "status_cd has no 'c'; it has 'C'"),
        ('status_cd = "Q"', "status_cd has no 'Q'; it has 'C', 'D', 'N', 'P'"),
        ("status_cd IN ('x', 'y')", "status_cd has no 'x' or 'y'; it has 'C', 'D', 'N', 'P'"),
        ("country = 'norway '", "country has no 'norway '; it has 'Norway'"),
        ("country = 'Swizerland'", "country has no 'Swizerland'; it has 'Switzerland'"),
        ("country = 'Switz'", "country has no 'Switz'; it has 'Switzerland'"),
        ("country LIKE '%xyz%'",
         "country is never like '%xyz%'; it has values such as 'Denmark', 'Finland'"),
        ("id = 500", "id has no 500; it has 1 to 100"),
        ("total > 1000", "no total is > 1000; it has 0.0 to 49.5"),
        ("total BETWEEN -9 AND -1", "no total is between -9 and -1; it has 0.0 to 49.5"),
        ("status_cd = NULL", "status_cd = NULL is never true: write status_cd IS NULL"),
        ("status_cd <> NULL", "status_cd <> NULL is never true: write status_cd IS NOT NULL"),
        ("sent_at = '2025-04-13'", "sent_at has no '2025-04-13'; it has '2025-04-13 08:15:00'"),
        ("sent_at > '2026-01-01'",
         "no sent_at is > '2026-01-01'; it has '2025-01-10 08:15:00' to '2025-09-23 08:15:00'"),
        ("country = '{0} %'", "country has no '{0} %'; it has values such as 'Denmark', 'Finland'"),
        ("country = 'it''s'", "country has no 'it''s'; it has values such as 'Denmark', 'Finland'"),
        # what some row meets, or what a remark can't know
        ("status_cd = 'C' AND id < 0 AND id > 0", "no id is < 0; it has 1 to 100"),
        ("status_cd = 'C' AND country = 'Finland'", None),
        ("NOT status_cd = 'Q' AND id % 2 > 5", None),
        ("status_cd <> 'C' AND status_cd NOT IN ('D', 'N', 'P', 'Q')", None),
        ("upper(status_cd) = 'Q'", None),
        ("status_cd = (SELECT 'Q')", None),
        ("status_cd IS NULL", None),
    ],
)  # fmt: skip
def test_a_query_that_finds_nothing_says_why(runner, path, condition, remark):
    wanted = [] if remark is None else [remark]
    for what in ("*", "count(*)", "max(total)", "sum(total), count(id)"):
        found = ask(runner, path, f"SELECT {what} FROM orders WHERE {condition}")
        assert found.error is None
        assert found.remarks == wanted
    assert not ask(runner, path, f"SELECT * FROM orders WHERE {condition}", ("remarks",)).remarks


def test_a_result_with_values_has_no_reason(runner, path):
    for sql in (
        "SELECT id FROM orders WHERE status_cd = 'C' OR status_cd = 'Q'",
        "SELECT count(*) FROM orders WHERE country IN ('Norway', 'Atlantis')",
        "SELECT 0, 'x' FROM orders WHERE status_cd = 'C' LIMIT 1",
    ):
        assert ask(runner, path, sql, ("empty",)).remarks == []


@pytest.mark.parametrize(
    ("sql", "remarks"),
    [
        ("SELECT o.id FROM orders AS o JOIN customers AS c ON o.country = c.country",
         ["orders.country and customers.country have no value in common"]),
        ("SELECT o.id FROM orders AS o, customers AS c WHERE o.total = c.name",
         ["orders.total and customers.name have no value in common"]),
        ("SELECT 1 FROM orders o JOIN customers c ON customer_id = c.id WHERE c.country = 'Norway'",
         ["country has no 'Norway'; it has 'CH', 'DE'"]),
        # two at most, each once
        ("SELECT 1 FROM orders WHERE id = -1 AND id = -1 AND total = -2 AND weight = -3",
         ["id has no -1; it has 1 to 100", "total has no -2; it has 0.0 to 49.5"]),
        # in a query inside, but not in one that is negated
        ("SELECT 1 FROM orders WHERE customer_id IN (SELECT id FROM customers WHERE name = 'Eve')",
         ["name has no 'Eve'; it has 'Ann', 'Bo', 'Cleo', 'Dan'"]),
        ("SELECT 1 FROM orders WHERE id = -1 AND NOT EXISTS (SELECT 1 FROM customers"
         " WHERE name = 'Eve')", ["id has no -1; it has 1 to 100"]),
        ("SELECT 1 FROM orders WHERE id = -1 AND customer_id NOT IN (SELECT id FROM customers"
         " WHERE name = 'Eve')", ["id has no -1; it has 1 to 100"]),
        # of an OR, only if all of it is impossible
        ("SELECT sum(weight) - sum(weight) FROM orders WHERE id < 5 OR status_cd = 'ZZ'", []),
        ("SELECT 1 FROM orders WHERE id = -1 OR status_cd = 'Q'",
         ["id has no -1; it has 1 to 100", "status_cd has no 'Q'; it has 'C', 'D', 'N', 'P'"]),
        # of an empty table, only that
        ("SELECT max(größe) FROM sizes WHERE größe > 1", ["sizes has no rows"]),
        # a WITH table that is named like a table
        ("WITH orders AS (SELECT id, lower(status_cd) AS status_cd FROM main.orders)"
         " SELECT * FROM orders WHERE status_cd = 'c' AND id = -5", []),
        ('SELECT 1 FROM orders WHERE EXISTS (SELECT 1 FROM customers WHERE name = "total")', []),
        # names that are ambiguous, or not of a table
        ("SELECT 1 FROM orders, customers WHERE country = 'Q'", None),
        ("WITH t AS (SELECT 1 AS x) SELECT x FROM t WHERE x = 2", []),
        ("SELECT x FROM (SELECT status_cd AS x FROM orders) WHERE x = 'Q'", []),
        ("SELECT id FROM open_orders WHERE status_cd = 'C'", ["status_cd has no 'C'; it has 'N'"]),
    ],
)  # fmt: skip
def test_conditions_are_those_of_tables(runner, path, sql, remarks):
    found = ask(runner, path, sql)
    if remarks is None:
        assert "ambiguous" in (found.error or "")
    else:
        assert (found.error, found.remarks) == (None, remarks)


@pytest.mark.parametrize(
    ("sql", "remarks"),
    [
        ('SELECT "nicknames" FROM customers',
         ["\"nicknames\" is no column: it was read as the text 'nicknames'"]),
        ('SELECT name FROM customers ORDER BY "agee"',
         ["\"agee\" is no column: it was read as the text 'agee'"]),
        ('SELECT "nickname" FROM customers', []),
        ('SELECT id, (SELECT "total" FROM customers LIMIT 1) FROM orders', []),
        ('SELECT "rowid" FROM orders', []),
        ('WITH t(x) AS (SELECT 1) SELECT "x" FROM t', []),
        ('SELECT name AS "n" FROM customers ORDER BY "n"', []),
        ('SELECT name FROM customers WHERE country = "CH"', []),
        ('SELECT "Unit Price" FROM orders', []),
        ('SELECT "x" FROM (SELECT name AS x FROM customers)', []),
        ("SELECT sum(total > 20) / count(*) FROM orders",
         ["whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"]),
        ("SELECT country, count(*) / 7 FROM orders GROUP BY country ORDER BY 2",
         ["whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"]),
        ("SELECT 1.0 * sum(total > 20) / count(*) FROM orders", []),
        ("SELECT sum(total) / count(*) FROM orders", []),
        ("SELECT count(*) / 2 FROM orders", []),  # 100 / 2
        ("SELECT id FROM orders WHERE id / 2 = 3", []),
        ("SELECT id / 2 FROM orders WHERE id IN (1, 2) ORDER BY id DESC LIMIT 1", []),
        ("SELECT id / 2 FROM orders WHERE id IN (1, 2) ORDER BY id LIMIT 1",
         ["whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"]),
        ("SELECT weight / 2, count(*) FROM orders GROUP BY 1",
         ["whole numbers were divided, which drops the fraction; to keep it, write 1.0 * a / b"]),
        ("SELECT (weight + 2) / 3, id / 10 * 10 FROM orders", []),
        ("SELECT '7/2' FROM orders", []),
        ("SELECT 172", []),
        ("VALUES (172)", []),
        ("SELECT 'a', 2 UNION SELECT 'b', 3 FROM orders", []),
        ("SELECT x FROM (SELECT 172 AS x)", []),
        ("SELECT 'all', count(*) FROM orders", []),
        ("SELECT 'few', 2 UNION SELECT 'all', count(*) FROM orders", []),
        ("SELECT EXISTS (SELECT 1 FROM orders)", []),
        ("SELECT CASE WHEN count(*) > 9 THEN 'yes' ELSE 'no' END FROM orders", []),
        ("SELECT name FROM customers -- 1/2", []),
    ],
)  # fmt: skip
def test_a_result_that_misleads_has_a_remark(runner, path, sql, remarks):
    found = ask(runner, path, sql)
    assert (found.error, found.remarks) == (None, remarks)
    assert ask(runner, path, sql, ("empty", "errors")).remarks == []


PEOPLE = """
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, born TEXT, died TEXT, joined TEXT,
                     n INTEGER, price REAL);
INSERT INTO person VALUES
(1, 'Ann', '31.12.1999', '2050-01-02', '5 May 2020', 2, 5),
(2, 'Bo', '01.02.2001', NULL, '12 Jan 2021', 4, 7),
(3, 'Cy', '15.06.1980', '2049-12-31', NULL, NULL, 9);
CREATE TABLE fee (usd TEXT, eur TEXT, share TEXT, zip TEXT, ip TEXT, seconds TEXT);
INSERT INTO fee VALUES ('950', '3,5', '12 %', '01069', '10.0.0.12', '26.898'),
('1,250.50', '1.250', '7.5%', '90210', '10.0.0.9', '23.227');
"""
UNORDERED = "born has dates such as '31.12.1999', whose order as texts is not that of time"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_database(tmp_path_factory.mktemp("people") / "own.sqlite", PEOPLE))


@pytest.mark.parametrize(
    ("sql", "remarks"),
    [
        ("SELECT name FROM person ORDER BY born LIMIT 1", [UNORDERED]),
        ("SELECT name, born AS b FROM person ORDER BY 2 DESC", [UNORDERED]),
        ("SELECT p.born AS b FROM person AS p ORDER BY b", [UNORDERED]),
        ("SELECT max(born) FROM person", [UNORDERED]),
        ("SELECT name FROM person WHERE born = (SELECT min(born) FROM person)", [UNORDERED]),
        ("SELECT count(*) FROM person WHERE born < '01.01.2000'", [UNORDERED]),
        ("SELECT count(*) FROM person WHERE '01.01.2000' <= born", [UNORDERED]),
        ("SELECT name FROM person WHERE born BETWEEN '01.01.1980' AND '31.12.1989'", [UNORDERED]),
        ("SELECT name FROM person ORDER BY joined",
         ["joined has dates such as '5 May 2020', whose order as texts is not that of time"]),
        ("SELECT sum(usd) FROM fee", ["usd has texts such as '1,250.50', which are not numbers"]),
        ("SELECT zip FROM fee ORDER BY eur",
         ["eur has texts such as '3,5', which are not numbers"]),
        ("SELECT count(*) FROM fee WHERE share > 10",
         ["share has texts such as '12 %', which are not numbers"]),
        ("SELECT max(zip), max(ip), avg(seconds) FROM fee", []),
        ("SELECT born FROM person WHERE born = '15.06.1980' ORDER BY name", []),
        ("SELECT name FROM person ORDER BY died, name, n, price", []),
        ("SELECT name FROM person ORDER BY substr(born, 7)", []),
        ("SELECT sum(n) / count(*) FROM person",
         ["count(*) counts the rows in which n is NULL; avg(n) does not"]),
        ("SELECT 1.0 * sum(n) / count(*) FROM person",
         ["count(*) counts the rows in which n is NULL; avg(n) does not"]),
        ("SELECT 1.0 * sum(p.n) / count(*) AS a FROM person AS p GROUP BY died IS NULL ORDER BY a",
         ["count(*) counts the rows in which n is NULL; avg(n) does not"]),
        ("SELECT sum(price) / count(*), sum(n) / count(n) FROM person", []),
        ("SELECT 1.0 * sum(n) / count(*) FROM person WHERE n IS NOT NULL", []),
        ("SELECT x FROM (SELECT 1.0 * sum(n) / count(*) AS x FROM person WHERE id < 3)", []),
    ],
)  # fmt: skip
def test_dates_and_nulls_that_mislead_have_a_remark(runner, people, sql, remarks):
    found = ask(runner, people, sql, ("remarks",))
    assert (found.error, found.remarks) == (None, remarks)


@pytest.mark.parametrize(
    ("sql", "remedy"),
    [
        ("SELECT * FROM Patient Records", 'write "Patient Records", in double quotes'),
        ("SELECT * FROM patient_records", 'write "Patient Records", in double quotes'),
        ("SELECT * FROM PartsCatalog", 'write "Parts Catalog", in double quotes'),
        ("SELECT Unit Price FROM orders", 'write "Unit Price", in double quotes'),
        ("SELECT o.Unit Price FROM orders o", 'write "Unit Price", in double quotes'),
        ("SELECT max(unit_price) FROM orders", 'write "Unit Price", in double quotes'),
        ("SELECT First Name FROM Patient Records", 'write "Patient Records", in double quotes'),
        ('SELECT First Name FROM "Patient Records"', 'write "First Name", in double quotes'),
        ('SELECT p.First Name FROM "Patient Records" p', 'write "First Name", in double quotes'),
        ("SELECT name AS first_name, foo FROM customers", None),
        ("SELECT foo, größe FROM sizes", None),
        ("SELECT foo FROM orders WHERE id = 2020", None),
        ("SELECT 'x; y FROM orders, Unit Price", None),
        ("SELECT id FROM orders WHERE ORDER BY id", None),
        ("SELECT c.total FROM orders o", "total is a column of orders"),
        ('SELECT x.pid FROM "Patient Records" p', 'pid is a column of "Patient Records"'),
        ("SELECT order FROM orders", 'write "order", in double quotes'),
        ("SELECT * FROM order", "did you mean orders?"),
        ("SELECT * FROM custmers", "did you mean customers?"),
        ("SELECT nmae FROM customers", "did you mean name?"),
        ("SELECT name FROM orders", "name is a column of customers"),
        ("SELECT c.total FROM customers c", "total is a column of orders"),
        ("SELECT YEAR(sent_at) FROM orders", "use strftime('%Y', x)"),
        ("SELECT id FROM orders WHERE MONTH = 3", "use strftime('%m', x)"),
        ("SELECT DATE_TRUNC('month', sent_at) FROM orders", "use date(x, 'start of month')"),
        ("SELECT id FROM orders WHERE country ILIKE 'n%'", "use LIKE, which ignores the case"),
        ("SELECT TOP 5 id FROM orders", "use LIMIT n at the end"),
        ("SELECT total::int FROM orders", "use CAST(x AS type)"),
        ("SELECT EXTRACT(YEAR FROM sent_at) FROM orders", "use strftime('%Y', x)"),
        ("SELECT id FROM orders WHERE sent_at > DATE '2025-01-01'", "write a date as a text"),
        ("SELECT id FROM orders WHERE sent_at > now() - INTERVAL '1 day'", "use date(x, '+1 day')"),
        ("SELECT LEFT(country, 2) FROM orders", "use substr(x, 1, n)"),
        ("SELECT id FROM orders FETCH FIRST 3 ROWS ONLY", "use LIMIT n at the end"),
        # nothing better is known
        ("SELECT frobnicate(id) FROM orders", None),
        ("SELECT id FROM orders WHERE", None),
        ("SELECT zzz FROM orders", None),
        ("SELECT * FROM zzz", None),
        ("SELECT id FROM orders WHERE country = 'Patient Records' AND", None),
    ],
)  # fmt: skip
def test_an_error_names_the_remedy(runner, path, sql, remedy):
    plain, found = ask(runner, path, sql, ()), ask(runner, path, sql)
    assert plain.error is not None
    assert found.error is not None
    assert found.error_code == plain.error_code
    if remedy is None:
        assert found.error == plain.error
        return
    parts = plain.error.split("; ", 1)
    said = found.error.removeprefix(f"{parts[0]}; ")
    assert said.startswith(remedy), found.error
    assert said.endswith("".join(parts[1:]))
    assert "\n" not in found.error


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM orders WHERE country = '" + "x" * 19_000 + "'",
        "SELECT 1 FROM orders WHERE " + " AND ".join(f"country = 'c{n}'" for n in range(90)),
        "SELECT 1 FROM orders WHERE id = -1 AND " + "(" * 60 + "1" + ")" * 60,
        "SELECT 1 FROM orders WHERE country IN (" + ", ".join(f"'{n}'" for n in range(300)) + ")",
        "SELECT 1 FROM orders WHERE country = 'a' AND '" + "{x}" * 50 + "' = country",
    ],
)  # fmt: skip
def test_a_large_statement_costs_little_more(runner, path, sql):
    found = ask(runner, path, sql)
    assert (found.error, found.rows) == (None, [])
    assert len(found.remarks) <= 2
    assert all(len(one) < 400 for one in found.remarks)


def test_lookups_share_the_statements_steps(tmp_path):
    """A table of 2 million rows: what a look-up can't finish is left out."""
    script = f"""CREATE TABLE t (id INTEGER PRIMARY KEY, kind TEXT);
        {NUMBERS.format(2_000_000)} INSERT INTO t SELECT i, 'k' || (i % 3) FROM n"""
    path = make_database(tmp_path / "large.sqlite", script)
    sql = "SELECT count(*) FROM t WHERE kind = 'K1'"
    with SqlRunner() as runner:
        whole = ask(runner, str(path), sql)
        assert whole.remarks == ["kind has no 'K1'; it has 'k1'"]
    with SqlRunner(SqlLimits(max_vm_steps=int(whole.vm_steps * 1.2))) as runner:
        cut = ask(runner, str(path), sql)
        assert (cut.rows, cut.remarks) == ([(0,)], [])
    with SqlRunner() as runner, SqlRunner() as other:
        columns = ["id", "kind"]
        job = SqlJob(JobKind.VALUES, str(path), encode_columns("t", columns, columns, 2_000_000))
        values = runner.run(job)
        assert values.row_count == MAX_ROWS
        assert values.rows[1] == ("kind", "'k2', 'k0', 'k1'") == other.run(job).rows[1]
        low, high = (int(one) for one in str(values.rows[0][1]).split(";")[0].split(" to "))
        assert low == 1
        assert high > 1_990_000  # spread over the table
        assert values.vm_steps < 5_000_000


def test_what_is_in_columns(runner, path):
    def contents(table: str, rows: int, *columns: str) -> dict[str, str]:
        job = SqlJob(JobKind.VALUES, path, encode_columns(table, columns, columns, rows))
        result = runner.run(job)
        assert (result.error, result.row_count) == (None, None)
        return {str(column): str(text) for column, text in result.rows}

    columns = ("id", "status_cd", "sent_at", "total", "country", "weight")
    assert contents("orders", 100, *columns) == {
        "id": "1 to 100; 100 different",
        "status_cd": "'C', 'D', 'N', 'P'",
        "sent_at": "'2025-01-10 08:15:00' to '2025-09-23 08:15:00'; 100 different",
        "total": "0.0 to 49.5; 100 different",
        "country": "'Denmark', 'Finland', 'France'; 10 different",
        "weight": "0, 1, 2, 3, 4, 5, 6",
    }
    assert contents("customers", 4, "country", "nickname", "photo") == {
        "country": "'CH', 'DE'",  # by frequency
        "nickname": "'Bob'; 75 % NULL",
        "photo": "blob of 1 to 2 bytes; 50 % NULL",
    }
    assert contents("open_orders", 25, "status_cd") == {"status_cd": "'N'"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], ""),
        ([Value("null", None, 0, 0, 9)], "only NULL"),
        ([Value("text", "a", 1, 1, 999), Value("null", None, 0, 0, 1)], "'a'; under 1 % NULL"),
        ([Value("text", "a", 1, 1, 1), Value("null", None, 0, 0, 999)], "'a'; 99 % NULL"),
        ([Value("text", "x" * 41, 60, 340, 2)], "text of 60 to 340 characters"),
        ([Value("text", "it's", 4, 4, 2)], "'it''s'"),
        ([Value("integer", n, 1, 1, 1) for n in range(20)], "0 to 19; 20 different"),
        ([Value("text", f"{n:02}" * 15, 30, 30, 1) for n in range(8)],
         f"'{'00' * 15}', '{'01' * 15}', '{'02' * 15}'; 8 different"),  # in bounded bytes
        ([Value("text", f"{n:02}" * 20, 40, 40, 1) for n in range(9)],
         f"'{'00' * 20}', '{'01' * 20}'; 9 different"),
        ([Value("blob", None, 5, 5, 3)], "blob of 5 bytes"),
        ([Value("text", "1", 1, 1, 3), Value("integer", 1, 1, 1, 2)], "'1', 1"),
    ],
)  # fmt: skip
def test_the_text_of_a_column_is_short(values, text):
    assert describe_values(values) == text


def test_tables_without_rowid_and_broken_text(tmp_path):
    many = MAX_ROWS + 5
    script = f"""CREATE TABLE w (k TEXT PRIMARY KEY) WITHOUT ROWID;
        {NUMBERS.format(many)} INSERT INTO w SELECT printf('%06d', i) FROM n;
        CREATE TABLE r (rowid TEXT, _rowid_ TEXT, oid TEXT);
        INSERT INTO r SELECT k, 'x', 'y' FROM w ORDER BY k;
        CREATE TABLE b (t TEXT); INSERT INTO b VALUES (CAST(x'ff41' AS TEXT));"""
    path = str(make_database(tmp_path / "odd.sqlite", script))
    names = ["rowid", "_rowid_", "oid"]
    with SqlRunner() as runner:
        for table, column, every, rows, text in (
            ("w", "k", ["k"], many, "'000001', '000002', '000003'; 10000 different"),
            ("r", "rowid", names, many, "'000001', '000002', '000003'; 10000 different"),
            ("r", "oid", names, many, "'y'"),
            ("b", "t", ["t"], 1, "'\ufffdA'"),
        ):
            job = SqlJob(JobKind.VALUES, path, encode_columns(table, [column], every, rows))
            assert runner.run(job).rows == [(column, text)]


def test_rowids_in_clusters_are_no_few_rows(tmp_path):
    script = f"""CREATE TABLE place (id INTEGER PRIMARY KEY, k TEXT);
        {NUMBERS.format(20_000)} INSERT INTO place SELECT i, 'k' || (i % 20) FROM n;
        INSERT INTO place VALUES (1000000000000, 'last');"""
    path = make_database(tmp_path / "clusters.sqlite", script)
    text = encode_columns("place", ["k"], ["id", "k"], 20_001)
    with SqlRunner() as runner:
        result = runner.run(SqlJob(JobKind.VALUES, str(path), text))
    assert result.rows == [("k", "'k0', 'k1', 'k10'; 20 different")]
    assert result.row_count == MAX_ROWS


@pytest.mark.parametrize("rows", [12_000, 60_000, 100_000, 123_456])
def test_values_in_turn_are_all_seen(tmp_path, rows):
    script = f"""CREATE TABLE place (n INTEGER PRIMARY KEY, k TEXT, half INTEGER);
        {NUMBERS.format(rows)}
        INSERT INTO place SELECT i, 'k' || (i % 6), nullif(i % 2, 0) FROM n;"""
    path = make_database(tmp_path / "turns.sqlite", script)
    with SqlRunner() as runner:
        text = encode_columns("place", ["k", "half"], ["n", "k", "half"], rows)
        result = runner.run(SqlJob(JobKind.VALUES, str(path), text))
    found = dict(result.rows)
    assert sorted(str(found["k"]).split(", ")) == [f"'k{n}'" for n in range(6)]
    assert found["half"] in ("1; 49 % NULL", "1; 50 % NULL", "1; 51 % NULL")
    assert result.row_count == (MAX_ROWS if rows > 2 * MAX_ROWS else 8402)  # some places are one


def test_values_share_a_budget_of_steps(tmp_path):
    """Columns beyond it have no values: on every machine the same ones."""
    names = [f"c{n}" for n in range(20)]
    columns = ", ".join(f"max(a.i) + {n} AS {name}" for n, name in enumerate(names))
    script = f"""CREATE TABLE t AS {NUMBERS.format(3000)} SELECT i FROM n;
        CREATE VIEW slow AS SELECT {columns} FROM t AS a, t AS b LIMIT 5;"""
    path = make_database(tmp_path / "slow.sqlite", script)
    with SqlRunner(SqlLimits(max_cpu_s=60.0)) as runner:
        text = encode_columns("slow", names, names, 1)
        result = runner.run(SqlJob(JobKind.VALUES, str(path), text))
    assert result.error is None
    assert result.vm_steps < 20_100_000
    assert [bool(text) for _, text in result.rows] == [False] * 20


def test_a_remark_does_not_depend_on_what_ran_before(tmp_path):
    """A look-up that needs the heap that other databases' caches fill runs again without them."""
    numbers = NUMBERS.format(60_000)
    script = f"""CREATE TABLE a AS {numbers} SELECT i, i AS x FROM n;
        CREATE TABLE b AS {numbers} SELECT i, i + 1000000 AS x FROM n;"""
    path = make_database(tmp_path / "pair.sqlite", script)
    numbers = NUMBERS.format(1500)
    script = f"CREATE TABLE t AS {numbers} SELECT printf('%.*c', 1000, 'x') AS x FROM n"
    others = [make_database(tmp_path / f"{n}.sqlite", script) for n in range(8)]
    sql = "SELECT a.i FROM a JOIN b ON a.x = b.x WHERE b.i < 100 AND a.i < 5"
    limits = SqlLimits(max_heap_bytes=8 * 1024 * 1024)
    try:
        with SqlRunner(limits) as fresh:
            alone = ask(fresh, str(path), sql)
        with SqlRunner(limits) as busy:
            for other in others:
                ask(busy, str(other), "SELECT count(x || 'y') FROM t")
            assert ask(busy, str(path), sql) == alone
    finally:
        apsw.hard_heap_limit(SqlLimits().max_heap_bytes)
    assert alone.remarks == ["a.x and b.x have no value in common"]


@pytest.mark.parametrize(
    ("text", "is_date"),
    [
        *((date, True) for date in ("31.12.1999", "1/2/99", "31 Dec 1999", "December 31, 1999")),
        *((date, True) for date in ("Mar 2020", "02-01-2000 10:15", "31. Dec 1999")),
        *((other, False) for other in ("01.23.45.67.89", "10.12.14.5", "1.2.10.3", "Marathon 5")),
        *((other, False) for other in ("Mark 2", "2020-01-31", "45.12.1999", "May", "1/2")),
    ],
)
def test_a_date_as_text_is_not_a_number_or_a_name(text, is_date):
    assert bool(TEXT_DATE.fullmatch(text)) is is_date
