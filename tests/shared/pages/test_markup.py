"""Actions and observations as markup: SQL in colours, results as tables, long texts cut."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.pages.markup import action_markup, cut, observation_markup, short, sql
from tests.trainer.played_run import HOSTILE_SQL


@settings(max_examples=50)
@given(st.text(max_size=80))
def test_highlighting_changes_no_letter_and_lets_no_markup_through(text):
    shown = sql(text)
    bare = re.sub(r'<span class="\w\w">|</span>', "", str(shown))
    assert html.unescape(bare) == re.sub("\r\n?", "\n", text)
    assert "<" not in bare


def test_sql_is_highlighted():
    found = action_markup("QUERY: SELECT name FROM t WHERE a = 'x' AND b > 2 -- why")
    assert found.kind == "QUERY"
    for part in (">SELECT<", 'st">&#39;x&#39;<', 'nu">2<', 'co">-- why<'):
        assert part in found.argument
    assert "<script" not in str(action_markup(f"QUERY: {HOSTILE_SQL}").argument)
    assert action_markup("what now?").kind == ""


@pytest.mark.parametrize(
    ("action", "observation", "kind", "headings", "rows", "remark"),
    [
        ("QUERY: x", "a | b\n1 | x", "table", ("a", "b"), (("1", "x"),), ""),
        ("QUERY: x", "a\n(no rows)", "table", ("a",), (), "no rows"),
        ("SAMPLE: t", "a | b\n1 | x | y", "text", (), (), ""),
        ("QUERY: x", "a\n(first 2 rows; there are more)", "table", ("a",), (),
         "first 2 rows; there are more"),
        ("QUERY: x", "Error: no such table: t", "error", (), (), ""),
        ("DESCRIBE: t", "t: 2 rows\nid INTEGER primary key\nname", "table",
         ("column", "type", "key"), (("id", "INTEGER", "primary key"), ("name", "", "")), ""),
        ("DESCRIBE: t", "t: 2 rows\nb_id VARCHAR(9) -> b.id", "table",
         ("column", "type", "key"), (("b_id", "VARCHAR(9)", "→ b.id"),), ""),
        ("DESCRIBE: t", '"a b": 2 rows\n"K (12)" REAL primary key -> "a b"."x -> y"\nc NOT-A TYPE',
         "table", ("column", "type", "key"),
         (('"K (12)"', "REAL", 'primary key, → "a b"."x -> y"'), ("c", "NOT-A TYPE", "")), ""),
        ("DESCRIBE: t", "t: 9 rows\na INTEGER primary key: 1 to 9; 9 different\nb -> u.\"b: c\"\n"
         "c: 'x -> y', 'p -- q: r'; 3 % NULL -- what: it is\nd T(9) -- 'it''s",
         "table", ("column", "type", "key", "values", "description"),
         (("a", "INTEGER", "primary key", "1 to 9; 9 different", ""),
          ("b", "", '→ u."b: c"', "", ""),
          ("c", "", "", "'x -> y', 'p -- q: r'; 3 % NULL", "what: it is"),
          ("d", "T(9)", "", "", "'it''s")), ""),
        ("DESCRIBE: t", 't: 9 rows\n(columns 1 to 1 of 80; "DESCRIBE: t 2" shows those)\na',
         "table", ("column", "type", "key"), (("a", "", ""),),
         'columns 1 to 1 of 80; "DESCRIBE: t 2" shows those'),
        ("SAMPLE: t", "a | b\n1 | 2\n(2 columns of 80; x)", "table", ("a", "b"), (("1", "2"),),
         "2 columns of 80; x"),
        ("QUERY: x", "a\n(no rows)\n(note: a has no 'Z')\n(note: it has f(x))", "table", ("a",), (),
         "no rows; note: a has no 'Z'; note: it has f(x)"),
        ("QUERY: x", "a | b\n1 | 2\n(first 1 rows; there are more)\n(note: x)", "table", ("a", "b"),
         (("1", "2"),), "first 1 rows; there are more; note: x"),
        ("ANSWER: 1", "", "none", (), (), ""),
    ],
)  # fmt: skip
def test_results_are_read_as_tables(action, observation, kind, headings, rows, remark):
    found = observation_markup(action, observation)
    assert (found.kind, found.headings, found.rows, found.remark) == (kind, headings, rows, remark)


@pytest.mark.parametrize(
    "more",
    ["", "; values are from 5 of them", " -- of x: 2 rows", "; values are from 5 of them -- z"],
)
def test_the_heading_of_a_table_says_its_rows_and_all_that_follows(more):
    found = observation_markup("DESCRIBE: t", f"t: 1234 rows{more}\na")
    assert (found.kind, found.caption) == ("table", f"t: 1,234 rows{more}")


def test_a_long_result_says_how_much_is_left_out():
    result = "a\n" + "\n".join(map(str, range(20))) + "\n(note: y)"
    found, whole = (observation_markup("QUERY: x", result, whole=one) for one in (False, True))
    assert (len(found.rows), len(whole.rows), whole.remark) == (12, 20, "note: y")
    assert found.remark == "note: y; 8 of the 20 rows that the agent saw are left out here"
    assert cut("x" * 30, 10) == "x" * 10 + "… (20 more characters)"
    assert short("a\n b" * 9, 6) == "a ba …"
