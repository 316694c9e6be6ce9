"""What each of the three standards accepts, of SQL results and texts; training uses strict.

And how they agree with the official Spider evaluator on a real agent's queries.
"""

import json
import os
import time
from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_server.sql import JobKind, SqlJob, SqlLimits
from env_server.sql.run import SqlRunner
from env_server.verifier import STANDARDS, Gold, answer_verdicts, result_verdicts
from env_server.verifier.gold import Block
from env_server.verifier.pairing import column_order

ORDERED, UNORDERED = "SELECT a, b FROM t ORDER BY c", "SELECT a, b FROM t"
# 'order by' as a text, and no order of the whole
SUBQUERY = "SELECT a, b FROM (SELECT * FROM t ORDER BY a)"
ROWS = [("Ann", 1), ("Bob", 2), ("Bob", 2)]


def gold_of(rows: list[Any], sql: str) -> Gold:
    return Gold.of(list(map(list, rows)), "table", sql)


def verdicts(rows: list[Any], gold: list[Any], sql: str = UNORDERED) -> str:
    found = result_verdicts(rows, replace(gold_of(gold, sql), ties=None))
    assert list(found) == ["strict", "spider", "bird"]
    return " ".join(name for name, right in found.items() if right)


@pytest.mark.parametrize(
    ("rows", "sql", "right"),
    [
        (ROWS, UNORDERED, "strict spider bird"),
        (ROWS[::-1], UNORDERED, "strict spider bird"),
        (ROWS[::-1], ORDERED, "bird"),
        (ROWS[::-1], SUBQUERY, "strict bird"),
        ([(b, a) for a, b in ROWS], UNORDERED, "spider"),
        ([(b, a) for a, b in ROWS], ORDERED, "spider"),
        (ROWS[:2], UNORDERED, "bird"),
        ([*ROWS, ROWS[0]], UNORDERED, "bird"),
        ([("Ann", 1), ("Ann", 1), ("Bob", 2)], UNORDERED, "bird"),
        ([("Ann", 1.0), ("Bob", 2.0), ("Bob", 2)], UNORDERED, "strict spider bird"),
        ([("Ann", "1"), ("Bob", 2), ("Bob", 2)], UNORDERED, ""),
        ([("ann", 1), ("Bob", 2), ("Bob", 2)], UNORDERED, ""),
        ([("Ann", 1, 1), ("Bob", 2, 2), ("Bob", 2, 2)], UNORDERED, ""),
        ([("Ann",), ("Bob",), ("Bob",)], UNORDERED, ""),
        ([("Ann", None), ("Bob", 2), ("Bob", 2)], UNORDERED, ""),
        ([], UNORDERED, ""),
    ],
)
def test_results(rows, sql, right):
    assert verdicts(rows, ROWS, sql) == right


@pytest.mark.parametrize(
    ("value", "gold", "right"),
    [
        (0.1 + 0.2, 0.3, "strict"),  # sums differ in their last digits with the order of the scan
        (1234567.0, 1234567.5, "strict"),
        (1234567.0, 1234570.0, ""),
        (1.00001, 1.0, ""),
        (100, 100.00005, "strict"),
        (1e-12, 0.0, "strict"),
        (1e-6, 2e-6, ""),
        (9007199254740992, 9007199254740993, ""),  # integers are exact
        ("2021-03-01 00:00:00", "2021-03-01", "strict"),
        ("2021-03-01", "1 March 2021", ""),
        ("straße", "STRASSE", ""),
        ("Zoe\u0308", "Zoë", ""),  # two queries of one database give the same bytes
    ],
)
def test_values_of_results(value, gold, right):
    assert verdicts([(value,)], [(gold,)]) == right
    assert verdicts([("x", value), ("y", 1)], [("y", 1), ("x", gold)]) == right


def test_ties_are_open_to_strict_alone():
    gold = gold_of([("a", 2), ("b", 1)], "SELECT x, y FROM t ORDER BY y DESC LIMIT 2")
    assert gold.ties is not None
    known = gold.with_ties([("a", 2), ("b", 1), ("c", 1)])
    assert known.blocks == (Block(1, (("a", 2),)), Block(1, (("b", 1), ("c", 1))))
    assert result_verdicts([("a", 2), ("c", 1)], known) == {
        "strict": True,
        "spider": False,
        "bird": False,
    }
    assert not any(result_verdicts([("c", 1), ("a", 2)], known).values())
    assert not any(result_verdicts([("a", 2), ("d", 1)], known).values())


# -- texts


def by(text: str, answer: Any, kind: str, sql: str = UNORDERED) -> str:
    found = answer_verdicts(text, Gold.of(answer, kind, sql, "How many singers?"))  # type: ignore[arg-type]
    return " ".join(name for name, right in found.items() if right)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Ann | 1\nBob | 2\nBob | 2", "strict spider bird"),
        ("Bob | 2\nBOB | 2.0\nAnn | 1 kg", "strict spider bird"),
        ("1 | Ann\n2 | Bob\n2 | Bob", "spider"),
        ("Ann | 1\nBob | 2", "bird"),
        ("Ann | 1\nAnn | 1\nBob | 2\nBob | 2", "bird"),
        ("Ann | 1\nBob | 2\nCy | 2", ""),
        ("Ann | 1 | 1\nBob | 2 | 2\nBob | 2 | 2", ""),
        ("Ann | 1\nBob", ""),
        ('[["Ann", 1], ["Bob", 2], ["Bob", 2]]', "strict spider bird"),
        ("", ""),
    ],
)
def test_texts_of_tables(text, right):
    assert by(text, list(map(list, ROWS)), "table") == right


def test_two_values_may_be_rounded_to_one():
    rows = [["Rome", 12.341], ["Oslo", 12.343]]
    for sql, order in ((UNORDERED, 1), (UNORDERED, -1), (ORDERED, 1)):
        text = json.dumps([[town, 12.34] for town, _ in rows[::order]])
        assert set(answer_verdicts(text, gold_of(rows, sql)).values()) == {True}
    ordered = answer_verdicts('[["Oslo", 12.34], ["Rome", 12.34]]', gold_of(rows, ORDERED))
    assert ordered == {"strict": False, "spider": False, "bird": True}
    wrong = '[["Rome", 12.34], ["Rome", 12.34]]'
    assert not any(answer_verdicts(wrong, gold_of(rows, UNORDERED)).values())


def test_texts_in_order():
    assert by("Ann, Bob", ["Ann", "Bob"], "list", ORDERED) == "strict spider bird"
    assert by("Bob, Ann", ["Ann", "Bob"], "list", ORDERED) == "bird"
    assert by("Bob, Ann", ["Ann", "Bob"], "list", SUBQUERY) == "strict bird"
    assert by("Bob, Ann, Ann", ["Ann", "Bob"], "list") == "bird"


CELLS = st.sampled_from([None, 0, 1, 2, 12.345, -3.5, "a", "B", "é", "2021-03-01", "x y"])
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(TABLES, st.randoms(use_true_random=False))
def test_the_golds_own_rows_in_json_are_right_by_every_standard(rows, chance):
    shuffled = rows[:]
    chance.shuffle(shuffled)
    gold = Gold.of(rows, "table", UNORDERED)
    assert all(answer_verdicts(json.dumps(shuffled), gold).values())
    assert all(result_verdicts(list(map(tuple, shuffled)), gold).values())
    more = [*shuffled, ["other"] * len(rows[0])]
    assert not any(answer_verdicts(json.dumps(more), gold).values())
    assert not any(result_verdicts(more, gold).values())


# -- the order of columns

SMALL = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 2), min_size=width, max_size=width), min_size=1, max_size=5
    )
)


@given(SMALL, st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_an_order_of_columns_is_found_where_there_is_one(gold, chance, ordered, spoil):
    """Compare with a search over all orders, which only small tables allow."""
    width = len(gold[0])
    order = chance.sample(range(width), width)
    rows = [[row[place] for place in order] for row in gold]
    if not ordered:
        chance.shuffle(rows)
    if spoil:
        rows[0][0] = 1 - rows[0][0]
    same = (lambda a, b: a == b) if ordered else (lambda a, b: sorted(a) == sorted(b))
    possible = any(
        same([[row[i] for i in turn] for row in rows], gold) for turn in permutations(range(width))
    )
    found = column_order(list(map(tuple, rows)), list(map(tuple, gold)), ordered)
    assert (found is not None) == possible
    if found is not None:
        assert same([[row[place] for place in found] for row in rows], gold)


def test_a_search_without_an_end_is_given_up():
    """All columns have the same cells, and no order fits."""
    width = 12
    gold = [tuple(int(row == column) for column in range(width)) for row in range(width)]
    rows = [*gold[:-2], tuple(a | b for a, b in zip(*gold[-2:], strict=True)), (0,) * width]
    began = time.thread_time()
    assert column_order(rows, gold, ordered=False) is None
    assert time.thread_time() - began < 2


SPIDER = Path(os.environ.get("SPIDER_DIR", "missing"))
MAX_ROWS = 100_000  # of one result; the official evaluator has no limit
LIMITS = SqlLimits(gold_rows=MAX_ROWS, max_result_bytes=500_000_000, max_result_cells=100_000_000)


@pytest.mark.slow
@pytest.mark.skipif(not SPIDER.is_dir(), reason="SPIDER_DIR names no copy of Spider")
def test_the_standards_agree_with_the_official_evaluator():
    """Spider's always; strict but for the order of columns."""
    agree, compared = Counter[str](), 0
    with SqlRunner(LIMITS) as runner:
        for line in (SPIDER / "verdict_pairs.jsonl").read_text().splitlines():
            pair = json.loads(line)
            if pair["pred_status"] != "ok":  # it did not run there
                continue
            path = str(SPIDER / "database" / pair["db_id"] / f"{pair['db_id']}.sqlite")
            gold_rows, found = (
                runner.run(SqlJob(JobKind.QUERY, path, pair[key], MAX_ROWS))
                for key in ("gold", "pred")
            )
            assert gold_rows.error is found.error is None
            gold = Gold.of([list(row) for row in gold_rows.rows], "table", pair["gold"])
            compared += 1
            for name, standard in STANDARDS.items():
                right = standard.result(found.rows, gold)
                agree[name] += right == pair["official_ex_keep_distinct"]
                if name == "strict" and right != pair["official_ex_keep_distinct"]:
                    order = column_order(found.rows, gold.rows, len(gold.blocks) > 1)
                    assert order, pair["dev_idx"]
                    assert list(order) != sorted(order), pair["dev_idx"]
    assert compared == 320
    assert agree["spider"] == 320
    assert agree["strict"] == 309
