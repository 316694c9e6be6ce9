"""Fresh domains and generated directories: one seed always gives the same data."""

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

from data.commands import app
from data.domains.fresh import fresh_domain
from data.domains.populate import open_memory, populate
from data.domains.spec import Domain, Kind
from data.domains.words import SQL_WORDS, indefinite, is_plural, plural, pseudo_word
from data.generate import generate
from shared.dataset import check_databases, data_digest, load_questions, load_splits, questions_path

SEEDS = range(60)


@pytest.fixture(scope="module")
def domains() -> list[Domain]:
    return [fresh_domain(seed) for seed in SEEDS]


def test_domains_differ_from_one_another(domains: list[Domain]) -> None:
    schemas = {tuple(sorted(table.name.lower() for table in domain.tables)) for domain in domains}
    assert len(schemas) == len(domains)
    assert len({domain.db_id for domain in domains}) == len(domains)


def test_identifiers_are_plain_and_unique(domains: list[Domain]) -> None:
    for domain in domains:
        tables = [table.name.lower() for table in domain.tables]
        assert len(set(tables)) == len(tables)
        for table in domain.tables:
            columns = [column.name.lower() for column in table.columns]
            assert len(set(columns)) == len(columns), (domain.db_id, columns)
            for name in (table.name, *columns):
                assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name)
                assert name.lower() not in SQL_WORDS


def test_a_column_is_found_by_its_phrase(domains: list[Domain]) -> None:
    """Each phrase has a word of its column's name that no other phrase of the table has."""
    for domain in domains:
        for table in domain.tables:
            worded = [c for c in table.columns if c.kind not in (Kind.KEY, Kind.REF)]
            for column in worded:
                others = {
                    word
                    for other in worded
                    if other is not column
                    for word in " ".join(other.wordings).split()
                }
                for phrase in column.wordings:
                    own = [
                        w
                        for w in phrase.split()
                        if w in column.name.lower() and w not in others - {"date"}
                    ]
                    assert own, (domain.db_id, table.name, column.name, phrase)


def test_names_often_differ_from_phrases(domains: list[Domain]) -> None:
    worded = [
        c
        for d in domains
        for t in d.tables
        for c in t.columns
        if c.kind not in (Kind.KEY, Kind.REF)
    ]
    plain = sum(column.name == column.wordings[0].replace(" ", "_") for column in worded)
    assert 0.2 < plain / len(worded) < 0.6


def test_contents_are_as_noisy_as_real_data(domains: list[Domain]) -> None:
    """NULLs, duplicates, non-ASCII text, parents without children, declared foreign keys."""
    nulls = duplicates = foreign = lonely = 0
    for seed, domain in zip(SEEDS, domains, strict=True):
        rows = populate(domain, random.Random(seed))
        connection = open_memory(domain, rows)
        assert list(connection.execute("PRAGMA foreign_key_check")) == []
        for table in domain.tables:
            assert 30 <= len(rows[table.name]) <= 200
            cells = [cell for row in rows[table.name] for cell in row]
            nulls += None in cells
            foreign += any(isinstance(cell, str) and not cell.isascii() for cell in cells)
            for index, column in enumerate(table.columns):
                column_cells = [row[index] for row in rows[table.name]]
                duplicates += len(set(column_cells)) < len(column_cells)
                if column.references:
                    parents = len(rows[column.references])
                    lonely += len(set(column_cells)) < parents
    assert min(nulls, duplicates, foreign, lonely) >= 20


def test_the_size_of_a_domain_has_bounds(domains: list[Domain]) -> None:
    for domain in domains:
        assert 2 <= len(domain.tables) <= 6
        assert all(30 <= table.rows <= 200 for table in domain.tables)


@pytest.mark.parametrize(
    ("noun", "many"),
    [("city", "cities"), ("home city", "home cities"), ("day", "days"), ("box", "boxes"),
     ("branch", "branches"), ("shelf", "shelves"), ("status", "statuses"),
     ("country", "countries"), ("photo", "photos")],
)  # fmt: skip
def test_plural(noun: str, many: str) -> None:
    assert plural(noun) == many


def test_grammar_of_phrases() -> None:
    phrases = ("points", "years of experience", "status", "price", "class", "number of goals")
    assert [phrase for phrase in phrases if is_plural(phrase)] == ["points", "years of experience"]
    assert [indefinite(p) for p in ("price", "age", "unit price", "hourly wage", "points")] == [
        "a price",
        "an age",
        "a unit price",
        "an hourly wage",
        "points",
    ]


def test_pseudo_words_are_many_and_never_reserved_in_sql() -> None:
    rng = random.Random(1)
    made = {pseudo_word(rng, 1, 3) for _ in range(2000)}
    assert len(made) > 1500
    assert not made & SQL_WORDS


def _fingerprint(directory: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*.*")):
        total.update(path.relative_to(directory).as_posix().encode() + path.read_bytes())
    return total.hexdigest()


def test_generated_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, data.generate\n"
        "data.generate.generate(5, 3, 30, pathlib.Path(sys.argv[1]), 0.5)"
    )
    prints = set()
    for hash_seed in ("1", "2"):
        out = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run(
            [sys.executable, "-c", code, str(out)], check=True, env=environment, timeout=120
        )
        prints.add(_fingerprint(out))
    assert len(prints) == 1


def test_generated_directory_is_a_data_directory(tmp_path: Path) -> None:
    written = generate(11, 4, 30, tmp_path)
    questions = load_splits(tmp_path)["train"]
    check_databases(tmp_path, questions)
    assert len(data_digest(tmp_path)) == 64
    assert len(questions) == written >= 110
    assert {question.difficulty for question in questions} == {"easy", "medium"}
    scripts = json.loads(
        (tmp_path / "questions" / "demonstrations.json").read_text(encoding="utf-8")
    )
    assert list(scripts) == [question.question_id for question in questions]
    for question in questions:
        path = tmp_path / "databases" / question.database_name / f"{question.database_name}.sqlite"
        rows = list(
            apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY).execute(question.gold_sql)
        )
        flat = [cell for row in rows for cell in row]
        match question.answer_type:
            case "table":
                assert [list(row) for row in rows] == question.gold_answer
            case "list":
                assert flat == question.gold_answer
            case _:
                assert flat == [question.gold_answer]


def test_a_database_does_not_depend_on_how_many_are_generated(tmp_path: Path) -> None:
    generate(2, 1, 20, tmp_path / "one")
    generate(2, 3, 20, tmp_path / "three")
    one = load_splits(tmp_path / "one")["train"]
    assert load_splits(tmp_path / "three")["train"][: len(one)] == one


def test_other_seeds_give_other_data(tmp_path: Path) -> None:
    texts = []
    for seed in (1, 2):
        generate(seed, 2, 30, tmp_path / str(seed))
        texts.append(
            {question.question_text for question in load_splits(tmp_path / str(seed))["train"]}
        )
    assert not texts[0] & texts[1]


@pytest.mark.parametrize("bad", [{"databases": 0}, {"noise": 1.5}, {"questions_per_database": 0}])
def test_bad_arguments_are_named(tmp_path: Path, bad: dict[str, float]) -> None:
    arguments = {"seed": 1, "databases": 1, "questions_per_database": 5, "out": tmp_path, **bad}
    with pytest.raises(ValueError, match=next(iter(bad))):
        generate(**arguments)  # type: ignore[arg-type]


def test_command_reports_what_it_wrote_and_an_unwritable_folder(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        [
            "generate",
            "--out",
            str(tmp_path / "a"),
            "--databases",
            "2",
            "--questions",
            "10",
            "--seed",
            "3",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "2 databases and 20 questions" in done.output.replace("\n", " ")
    blocked = tmp_path / "file"
    blocked.write_text("")
    failed = CliRunner().invoke(app, ["generate", "--out", str(blocked), "--databases", "1"])
    assert failed.exit_code == 1
    assert str(blocked) in failed.output.replace("\n", "")


def test_a_set_with_an_eval_split_keeps_its_databases_apart(tmp_path: Path) -> None:
    generate(3, 3, 12, tmp_path, eval_databases=1)
    train, evaluation = (
        load_questions(questions_path(tmp_path, split)) for split in ("train", "eval")
    )
    assert not {one.database_name for one in train} & {one.database_name for one in evaluation}
    assert len({one.database_name for one in train}) == 2
    scripts = json.loads((tmp_path / "questions" / "demonstrations.json").read_text())
    assert set(scripts) == {one.question_id for one in train}


def test_the_command_refuses_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(app, ["generate", "--out", str(tmp_path)])
    assert refused.exit_code == 1
    assert "is not empty" in refused.output
