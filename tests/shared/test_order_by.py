"""Which sort keys a query has, and where they stand in its rows."""

import pytest

from shared.order_by import Unresolved, parse_query, tie_query


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
def test_each_key_is_an_output_column_or_a_hidden_one(
    sql: str, hidden: int, keys: tuple[int, ...]
) -> None:
    ties = tie_query(parse_query(sql))
    assert ties is not None
    assert (ties.hidden, ties.keys) == (hidden, keys)
    assert "LIMIT" not in ties.sql


def test_a_row_is_split_into_what_is_visible_and_its_keys() -> None:
    ties = tie_query(parse_query("SELECT a, b FROM t ORDER BY b, c LIMIT 3 OFFSET 1"))
    assert ties is not None
    assert (ties.start, ties.stop, ties.is_original) == (1, 4, False)
    assert ties.split((1, 2, 3)) == ((1, 2), (2, 3))


def test_a_distinct_select_with_hidden_keys_is_marked() -> None:
    visible, hidden = (
        tie_query(parse_query(f"SELECT DISTINCT a FROM t ORDER BY {key}")) for key in "ab"
    )
    assert visible is not None
    assert hidden is not None
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
def test_what_cannot_be_determined_is_an_error(sql: str) -> None:
    with pytest.raises(Unresolved):
        tie_query(parse_query(sql))


def test_without_order_and_limit_there_is_nothing_to_run() -> None:
    assert tie_query(parse_query("SELECT a FROM t")) is None
