"""What sqlglot is asked to parse has a bound on its work."""

import pytest

from shared.sql_parser import TooMuchWork, is_constant, parse_sql


def joins(count: int, end: str = "") -> str:
    return "SELECT 1 FROM a" + " JOIN a" * count + end


def test_joins_that_sqlglot_tries_nested_end_soon():
    assert len(parse_sql(joins(4, " WHERE 0")).args["joins"]) == 4
    with pytest.raises(TooMuchWork, match="fewer joins"):
        parse_sql(joins(60))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 FROM a" + "".join(f" JOIN b AS b{n} ON a.x = b{n}.x" for n in range(40)),
        "SELECT " + "(" * 40 + "1" + ")" * 40,
        "SELECT x FROM t WHERE " + " OR ".join(f"x = {n}" for n in range(500)),
        " UNION ".join(["SELECT 1"] * 200),
    ],
)
def test_a_long_statement_is_parsed(sql):
    assert parse_sql(sql).sql(dialect="sqlite")


def test_what_is_no_statement_is_an_error():
    for sql in ("", ";", "SELECT FROM WHERE"):
        with pytest.raises(Exception, match=r"no statement|Expect|Invalid|Required"):
            parse_sql(sql)


@pytest.mark.parametrize(
    ("sql", "constant"),
    [
        ("SELECT 172", True),
        ("VALUES (172)", True),
        ("SELECT '7/2' FROM orders", True),
        ("SELECT 'a', 2 UNION SELECT 'b', 3 FROM orders", True),
        ("WITH t(x) AS (SELECT 1) SELECT x FROM t", True),
        ("SELECT x FROM (SELECT 172 AS x)", True),
        ("SELECT count(*) FROM orders", False),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM orders)", True),
        ("SELECT (SELECT max(price) FROM orders)", False),
        ("SELECT * FROM orders", False),
        ("SELECT 'a' UNION SELECT name FROM orders", False),
        ("SELECT FROM WHERE (", False),
    ],
)
def test_a_result_is_written_in_the_statement_if_no_column_reads_a_table(sql, constant):
    assert is_constant(sql) is constant
