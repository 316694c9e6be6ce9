"""Hold-outs: what a pretraining set must not contain, and that it contains all else."""

import json
import re

import apsw
import pytest

from data.domains.fresh import fresh_domain
from data.domains.held_out import held_out_values, held_out_words, is_held_out_pair, words_of
from data.domains.templates.balance import FORMS
from data.domains.words import WORDS
from data.generate import generate
from shared.dataset import questions_path


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
    assert len(held_out_values()) > 1000
    assert len(cells) > 1000
    assert not cells & held_out_values()


def test_held_out_pairs_never_occur_but_their_members_do(generated):
    questions = json.loads(questions_path(generated, "train").read_text())
    assert not any(
        is_held_out_pair(question["form"], question["question_text"]) for question in questions
    )
    assert {question["form"] for question in questions} == set(FORMS)
    for form, word in WORDS.held_out_pairs.items():
        others = [
            q
            for q in questions
            if q["form"] != form and re.search(rf"\b{word}\b", q["question_text"].lower())
        ]
        assert len(others) >= 5, (form, word)
