"""Fresh domains and generated directories: one seed always gives the same data.

What a pretraining set must not contain, and that it contains all else.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from data.audit import audit
from data.domains.held_out import held_out_values, held_out_words, is_held_out_pair, words_of
from data.domains.question_forms import FORMS
from data.domains.random_domains import fresh_domain
from data.domains.spec import Domain, Kind
from data.domains.words import HELD_OUT_PAIRS, SQL_WORDS
from data.generate import generate
from shared.dataset import check_databases, load_questions, load_splits, questions_path
from tests.data.sources.importing import run

ROOT = Path(__file__).parents[3]
SEEDS = range(60)


@pytest.fixture(scope="module")
def domains() -> list[Domain]:
    return [fresh_domain(seed) for seed in SEEDS]


def test_identifiers_are_plain_and_unique(domains):
    for domain in domains:
        tables = [table.name.lower() for table in domain.tables]
        assert len(set(tables)) == len(tables)
        for table in domain.tables:
            columns = [column.name.lower() for column in table.columns]
            assert len(set(columns)) == len(columns), (domain.db_id, columns)
            for name in (table.name, *columns):
                assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
                assert name.lower() not in SQL_WORDS


def test_a_column_is_found_by_its_phrase(domains):
    """Each phrase has a word of its column's name that no other phrase of the table has."""
    for table in (table for domain in domains for table in domain.tables):
        worded = [c for c in table.columns if c.kind not in (Kind.KEY, Kind.REF)]
        for column in worded:
            others = {
                word for c in worded if c is not column for p in c.wordings for word in p.split()
            }
            for phrase in column.wordings:
                own = set(phrase.split()) - (others - {"date"})
                assert any(word in column.name.lower() for word in own), (table.name, phrase)


def test_the_seed_determines_every_byte(tmp_path):
    words = [sys.executable, "-m", "data", "generate", "--seed", "5", "--databases", "3"]
    command = [*words, "--questions", "30", "--noise", "0.5", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONHASHSEED": "2"}
    subprocess.run(command, check=True, env=environment, cwd=ROOT, timeout=120)
    total = hashlib.sha256()
    for path in sorted(tmp_path.glob("out/questions/*.json")):
        total.update(path.read_bytes())
    assert total.hexdigest()[:12] == "8c910e7aa747"


def test_generated_directory_is_a_data_directory(tmp_path):
    written = generate(11, 4, 30, tmp_path)
    questions = load_splits(tmp_path)["train"]
    check_databases(tmp_path, questions)
    assert len(questions) == written >= 110
    assert {question.difficulty for question in questions} == {"easy", "medium"}
    content = (tmp_path / "questions" / "demonstrations.json").read_text(encoding="utf-8")
    assert list(json.loads(content)) == [question.question_id for question in questions]
    flags = {finding.flag for finding in audit(tmp_path).findings}
    assert not flags & {"stale", "failing", "empty", "null", "tied", "order-dependent", "undecided"}


def test_a_database_does_not_depend_on_how_many_are_generated(tmp_path):
    generate(2, 1, 20, tmp_path / "one")
    generate(2, 3, 20, tmp_path / "three")
    one = load_splits(tmp_path / "one")["train"]
    assert load_splits(tmp_path / "three")["train"][: len(one)] == one


def test_the_command_reports_what_it_wrote_and_replaces_nothing(tmp_path):
    words = ("generate", "--out", tmp_path / "a", "--databases", 2, "--questions", 10)
    status, text = run(*words)
    assert status == 0, text
    assert "2 databases and 20 questions" in text
    status, text = run(*words)
    assert (status, "is not empty" in text) == (1, True)


def test_a_set_with_an_eval_split_keeps_its_databases_apart(tmp_path):
    generate(2, 4, 40, tmp_path, eval_databases=1)
    assert "guessable-number" not in {found.flag for found in audit(tmp_path).findings}
    train, evaluation = (
        load_questions(questions_path(tmp_path, split)) for split in ("train", "eval")
    )
    assert not {one.database_name for one in train} & {one.database_name for one in evaluation}
    assert len({one.database_name for one in train}) == 3
    scripts = json.loads((tmp_path / "questions" / "demonstrations.json").read_text())
    assert set(scripts) == {one.question_id for one in train}


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    out = tmp_path_factory.mktemp("set")
    generate(5, 25, 100, out)
    return out


def test_no_schema_word_of_an_unseen_database_is_drawn():
    for seed in range(300):
        for table in fresh_domain(seed).tables:
            texts = [table.name, table.singular, table.plural]
            texts += [text for column in table.columns for text in (column.name, *column.wordings)]
            for text in texts:
                assert not held_out_words().intersection(words_of(text)), (seed, text)


@pytest.mark.slow
def test_no_value_of_an_unseen_database_is_generated(generated):
    cells = set()
    for path in generated.glob("databases/*/*.sqlite"):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                cells.update(cell for cell in row if isinstance(cell, str))
        connection.close()
    held_out = held_out_values()
    assert len(held_out) > 1000
    assert len(cells) > 1000
    assert not cells & held_out


def test_held_out_pairs_never_occur_but_their_members_do(generated):
    questions = json.loads(questions_path(generated, "train").read_text())
    assert not any(
        is_held_out_pair(question["form"], question["question_text"]) for question in questions
    )
    assert {question["form"] for question in questions} == set(FORMS)
    for form, word in HELD_OUT_PAIRS.items():
        others = [
            q
            for q in questions
            if q["form"] != form and re.search(rf"\b{word}\b", q["question_text"].lower())
        ]
        assert len(others) >= 5, (form, word)
