"""Templates: text and SQL agree, on fresh domains, on the shipped ones and on a small one."""

import operator
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import apsw
import pytest

from data.domains.populate import open_memory, populate
from data.domains.question_forms import FORMS, AnsweredDraft, balanced
from data.domains.question_forms.asker import Asker, NoQuestionError
from data.domains.random_domains import fresh_domain
from data.domains.shipped import DATA_DIR, SHIPPED, Shipped
from data.domains.spec import Column, Domain, Kind, Rows, Table
from data.golds.check_gold import open_readonly
from shared.dataset import check_databases, database_path, load_splits
from tests.data.sources.importing import files_of, run

SEEDS = range(30)
ByForm = dict[str, list[AnsweredDraft]]


# Four shops and twelve sales. Two shops tie for the largest area; one shop has no sale.
SHOP_COLUMNS = (
    Column("shop_id", Kind.KEY),
    Column("shop_name", Kind.NAME, phrases=("name",)),
    Column("floor_area", Kind.REAL, phrases=("area",)),
    Column("opened_on", Kind.DATE, phrases=("day",)),
)
SALE_COLUMNS = (
    Column("sale_id", Kind.KEY),
    Column("shop_id", Kind.REF, references="shops"),
    Column("pay_method", Kind.CATEGORY, phrases=("method",)),
    Column("amount", Kind.INTEGER),
)
SHOPS = Table("shops", "shop", "shops", SHOP_COLUMNS, 4)
SALES = Table("sales", "sale", "sales", SALE_COLUMNS, 12)
REFS = (1, 1, 1, 2, 2, 3, 3, 3, 3, 1, 2, 3)
METHODS = ("card",) * 7 + ("cash",) * 4 + (None,)
AMOUNTS = (5, 7, None, 9, 12, 12, 3, 8, 6, 10, 11, 4)
ROWS: Rows = {
    "shops": [
        (1, "North End", 80.0, "2001-05-02"),
        (2, "Old Mill", 120.0, "1999-01-01"),
        (3, "O'Hara's", 120.0, "2010-12-31"),
        (4, "Quay", 45.5, "2010-12-30"),
    ],
    "sales": list(zip(range(1, 13), REFS, METHODS, AMOUNTS, strict=True)),
}


@pytest.fixture(scope="module")
def fresh() -> list[list[AnsweredDraft]]:
    found = []
    for seed in SEEDS:
        domain = fresh_domain(seed)
        rows = populate(domain, random.Random(seed))
        connection, rng = open_memory(domain, rows), random.Random(seed)
        found.append(balanced(domain, rows, connection, rng, {"easy": 25, "medium": 25}))
    return found


@pytest.fixture(scope="module")
def small() -> ByForm:
    domain = Domain("small", (SHOPS, SALES))
    connection = open_memory(domain, ROWS)
    found: dict[str, list[AnsweredDraft]] = {form: [] for form in FORMS}
    for seed in range(20):
        wanted = {"easy": 40, "medium": 40}
        for asked in balanced(domain, ROWS, connection, random.Random(seed), wanted):
            found[asked.draft.form].append(asked)
    return found


def _golds(asked: Sequence[AnsweredDraft], pattern: str) -> set[str]:
    """Return the golds of the questions that match, as text; at least one must."""
    matching = [item for item in asked if re.search(pattern, item.draft.text)]
    assert matching, (pattern, [item.draft.text for item in asked][:20])
    return {repr(item.gold.answer) for item in matching}


@pytest.mark.slow
def test_all_forms_are_asked_and_about_equally(fresh):
    forms = Counter(item.draft.form for asked in fresh for item in asked)
    assert set(forms) == set(FORMS)
    for difficulty in ("easy", "medium"):
        counts = [forms[form] for form, (level, _) in FORMS.items() if level == difficulty]
        assert max(counts) < 4 * min(counts), forms
    assert all(len(asked) == 50 for asked in fresh)


def test_questions_are_sentences_without_repeats(fresh):
    for asked in fresh:
        texts = [item.draft.text for item in asked]
        assert len(set(texts)) == len(texts)
        assert len({item.draft.sql for item in asked}) == len(asked)
        for text in texts:
            assert text[0].isupper()
            assert text[-1] in "?."
            assert "  " not in text
            assert "{" not in text
            assert not re.search(
                r"\b(a|an) (a|an|the)\b|\btotal total\b|\bnumber of number of\b", text
            )


def test_known_answers(small):
    assert _golds(small["count_all"], r"\bsales\b") == {"12"}
    assert _golds(small["count_equal"], r"card") == {"7"}
    assert _golds(small["extreme_value"], r"(highest|largest|maximum) amount") == {"12"}
    assert _golds(small["average"], r"amount") == {"7.91"}
    assert _golds(small["total"], r"amount") == {"87"}
    assert _golds(small["superlative"], r"(lowest|smallest) area") == {"'Quay'"}
    assert _golds(small["superlative"], r"(latest|most recent) day") == {"\"O'Hara's\""}
    assert _golds(small["join_count"], r"Old Mill") == {"3"}
    assert _golds(small["parent_top"], r"most|highest") == {"\"O'Hara's\""}
    assert _golds(small["join_aggregate"], r"(highest|maximum) amount .*North End") == {"10"}
    assert _golds(small["without_children"], r"shops") == {"1"}
    assert _golds(small["lookup"], r"day of the shop .*Quay") == {"'2010-12-30'"}
    assert _golds(small["reverse_lookup"], r"area 45\.5|area is 45\.5") == {"'Quay'"}
    assert _golds(
        small["top_names"], r"(2|two) shops with the lowest area|(2|two) shops have the lowest area"
    ) == {"['Quay', 'North End']"}


def test_ties_and_nulls_are_not_asked_about(small):
    """Two shops share the largest area; one method is NULL."""
    texts = [item.draft.text for item in (*small["superlative"], *small["reverse_lookup"])]
    assert not [text for text in texts if re.search("(highest|largest) area|120", text)]
    assert not small["group_top"]
    assert not small["list_distinct"]


def test_a_conditions_test_and_sql_agree():
    checked: Counter[Kind] = Counter()
    for seed in range(20):
        domain = fresh_domain(seed)
        rows = populate(domain, random.Random(seed))
        connection = open_memory(domain, rows)
        asker = Asker(domain, rows, random.Random(seed))
        for table in domain.tables:
            for column in table.of_kind(Kind.CATEGORY, Kind.INTEGER, Kind.REAL, Kind.DATE):
                with suppress(NoQuestionError):
                    made = asker.condition(table, column.kind)
                    sql = f"SELECT COUNT(*) FROM {table.name} WHERE {made.where()}"
                    assert connection.execute(sql).fetchall() == [
                        (len(asker.matching(table, made)),)
                    ]
                    checked[column.kind] += 1
    assert min(checked.values()) >= 10
    assert len(checked) == 4


def test_a_condition_on_a_day_treats_times_as_the_question_says():
    """`after 2024-01-02` leaves out 10:00 on that day, which SQL sorts behind the day alone."""
    times = [(f"2024-01-{day:02} 10:00",) for day in range(1, 21)]
    visits = Table("visits", "visit", "visits", (Column("visited", Kind.DATE),), len(times))
    meant = {"on or after": operator.ge, "after": operator.gt, "before": operator.lt}
    words = set()
    for seed in range(20):
        asker = Asker(Domain("one", (visits,)), {"visits": times}, random.Random(seed))
        with suppress(NoQuestionError):
            made = asker.condition(visits, Kind.DATE)
            ((word, day),) = re.findall(r"(on or after|after|before) (\S+)", made.having)
            matching = [row for row in times if meant[word](row[0][:10], day)]
            assert asker.matching(visits, made) == matching
            words.add(word)
    assert words == {"on or after", "before"}


def test_tables_that_refer_to_each_other_are_not_joined():
    """How many employees have no department: their own, or one whose head they are?"""
    best = Column("best_sale_id", Kind.REF, references="sales")
    mutual = replace(SHOPS, columns=(*SHOPS.columns, best))
    assert Asker(Domain("one", (SHOPS, SALES)), {}, random.Random(1)).link().parent is SHOPS
    with pytest.raises(NoQuestionError):
        Asker(Domain("both", (mutual, SALES)), {}, random.Random(1)).link()


SPLITS = load_splits(DATA_DIR)
TRAIN, EVAL = SPLITS["train"], SPLITS["eval"]
UNSEEN_IDS = {shipped.domain.db_id for shipped in SHIPPED if shipped.unseen}
SEEN = [question for question in EVAL if question.database_name not in UNSEEN_IDS]
all_databases = pytest.mark.parametrize(
    "shipped", SHIPPED, ids=[shipped.domain.db_id for shipped in SHIPPED]
)


@pytest.fixture
def connection(shipped: Shipped) -> Iterator[apsw.Connection]:
    opened = open_readonly(database_path(DATA_DIR, shipped.domain.db_id))
    yield opened
    opened.close()


def scalar(connection: apsw.Connection, sql: str) -> Any:
    return connection.execute(sql).fetchall()[0][0]


def test_no_training_question_touches_an_unseen_database():
    assert not UNSEEN_IDS & {question.database_name for question in TRAIN}
    assert {question.database_name for question in SEEN} == {
        question.database_name for question in TRAIN
    }
    check_databases(DATA_DIR, TRAIN + EVAL)


@all_databases
def test_tables_have_the_promised_shape(shipped, connection):
    assert 3 <= len(shipped.domain.tables) <= 7
    assert scalar(connection, "PRAGMA integrity_check") == "ok"
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    for table in shipped.domain.tables:
        assert 30 <= scalar(connection, f"SELECT COUNT(*) FROM {table.name}") <= 5000
    assert any(column.references for table in shipped.domain.tables for column in table.columns)


@pytest.mark.slow
def test_the_committed_data_is_what_the_code_builds(tmp_path):
    command = [sys.executable, "-m", "data", "build", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONHASHSEED": "31337"}
    subprocess.run(command, cwd=DATA_DIR.parent, env=environment, timeout=120, check=True)
    for folder in ("databases", "questions"):
        built, committed = files_of(tmp_path / folder), files_of(DATA_DIR / folder)
        assert built.keys() == committed.keys()
        assert [name for name in built if built[name] != committed[name]] == []


def test_unwritable_directory_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    status, text = run("build", "--out", tmp_path / "file" / "data")
    assert (status, text[:6]) == (1, "error:")
