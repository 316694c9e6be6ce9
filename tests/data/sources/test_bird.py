"""BIRD's layout becomes a data directory, with its evidence in the questions."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from data.sources.bird import read_bird
from data.sources.import_source import import_source
from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.dataset import data_digest, is_dev_question, left_out, load_splits
from shared.errors import DataError
from tests.data.sources.importing import QUESTIONS, imported, make_database, run_import
from trainer.__main__ import app as trainer_app

BIRD_DIR = os.environ.get("BIRD_DIR")
ALL_PAIRS = ("What are all triples of items?", "SELECT a.name, b.name FROM item a, item b, item c")
HEADER = "original_column_name,column_name,column_description,data_format,value_description\n"
DESCRIBED = (
    'name ,,what it is called,text,\nprice,,"the price\nof one",real,"unit: euro \u2022 with tax"\n'
    "id,item id,,,\n"
)


def make_bird(root: Path, name: str, database: str, file: str = "") -> None:
    make_database(root / f"{name}_databases" / database / f"{database}.sqlite")
    described = root / f"{name}_databases" / database / "database_description"
    described.mkdir()
    (described / "item.csv").write_text(HEADER + DESCRIBED, encoding="cp1252")
    rows = [
        {
            "question_id": number,
            "db_id": database,
            "question": text,
            "evidence": "dearest refers to\nMAX(price)" if number == 0 else "",
            "SQL": sql,
            "difficulty": ("simple", "moderate", "challenging")[number % 3],
        }
        for number, (text, sql) in enumerate([*QUESTIONS, ALL_PAIRS])
    ]
    (root / (file or f"{name}.json")).write_text(json.dumps(rows))


@pytest.mark.parametrize("folders", [("", ""), ("train", "dev_20240627")])
def test_both_splits_are_imported(tmp_path, folders):
    root = tmp_path / "bird"
    make_bird(root / folders[0], "train", "shop")
    make_bird(root / folders[1], "dev", "store")
    report = import_source(read_bird(root), tmp_path / "out")
    assert report.problems == []
    splits = load_splits(tmp_path / "out")
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 7, "eval": 7}
    first = splits["eval"][0]
    assert first.question_text == "How many items are there? Hint: dearest refers to MAX(price)"
    assert first.gold_answer == 4
    assert is_dev_question(first.question_id)
    assert splits["train"][1].question_text == "What does the cap cost?"


def test_the_dev_split_alone_is_for_evaluation(tmp_path):
    make_bird(tmp_path / "bird", "dev", "shop")
    text = imported("bird", tmp_path / "bird", "--out", tmp_path / "out", "--no-evidence")
    assert "no training questions, so it is for evaluation and play" in text
    texts = [one.question_text for one in load_splits(tmp_path / "out")["eval"]]
    assert texts[0] == "How many items are there?"


def evaluate(data: Path, out: Path) -> tuple[dict[str, Any], str]:
    """Let the oracle play all questions; return the result and what was printed."""
    levels = ("--difficulty", "easy,medium,hard", "--out", str(out))
    arguments = ("evaluate", "--policy", "oracle", "--data", str(data), *levels)
    done = CliRunner().invoke(trainer_app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return json.loads((out / "evaluation.json").read_bytes()), done.output


def test_an_answer_that_is_too_large_to_show_is_given_as_sql(tmp_path):
    make_bird(tmp_path / "bird", "dev", "shop")
    path = tmp_path / "bird" / "dev.json"
    path.write_text(path.read_text().replace("What does the cap cost?", ""))
    text = imported("bird", tmp_path / "bird", "--out", tmp_path / "out")
    assert "on request: oversize" in text
    *others, large = load_splits(tmp_path / "out")["eval"]
    assert {one.answer_form for one in others} == {"text"}
    assert (large.answer_form, len(large.gold_answer)) == ("sql", 64)
    assert "Answer with the SQL query, as its result is too long" in large.question_text

    result, shown = evaluate(tmp_path / "out", tmp_path / "played")
    assert result["success"]["overall"]["success"]["rate"] == 1.0
    levels = result["success"]["by_source_difficulty"]
    assert [(name, one["success"]["n"]) for name, one in levels.items()] == [
        ("simple", 3), ("moderate", 1), ("challenging", 2),
    ]  # fmt: skip
    assert result["left_out"] == {"of": 7, "reasons": {"bad row": 1}}
    assert "the import left out 1 of 7 (14.3 %): 1 bad row" in shown
    assert "source: challenging" in shown

    app = create_app(Settings(data_dir=tmp_path / "out", sql_workers=1))
    with in_process(app).sync() as client:
        for answer, outcome in ((large.gold_sql, "correct"), ("SELECT name FROM item", "wrong")):
            begun = client.reset(question_id=large.question_id)
            assert client.step(begun.episode_id, f"ANSWER: {answer}").info.outcome == outcome


def test_mini_dev_has_its_own_ids_and_the_databases_beside_it(tmp_path):
    root = tmp_path / "bird"
    make_bird(root / "MINIDEV", "dev", "shop", "mini_dev_sqlite.json")
    (root / "dev").mkdir()
    (root / "MINIDEV" / "dev_databases").rename(root / "dev" / "dev_databases")
    for source in (root, root / "MINIDEV"):
        imported("bird", source, "--out", tmp_path / "out")
        questions = load_splits(tmp_path / "out")["eval"]
        assert questions[0].question_id == "bird-mini-0000"
        assert is_dev_question(questions[0].question_id)
    make_bird(root / "whole", "dev", "shop")  # beside the whole of dev.json it is left out
    imported("bird", root, "--out", tmp_path / "out")
    assert load_splits(tmp_path / "out")["eval"][0].question_id == "bird-dev-0000"


def test_describe_shows_the_descriptions_on_request(tmp_path):
    make_bird(tmp_path / "bird", "dev", "shop")
    seen, digests = [], []
    for name, more in (("plain", ()), ("described", ("--descriptions",))):
        out = tmp_path / name
        imported("bird", tmp_path / "bird", "--out", out, *more)
        digests.append(data_digest(out))
        with in_process(create_app(Settings(data_dir=out, sql_workers=1))).sync() as client:
            begun = client.reset(question_id="bird-dev-0000")
            reply = client.step(begun.episode_id, "DESCRIBE: item").observation
            seen.append(reply.result.split("\n"))
    assert digests[0] != digests[1]
    said = ("item id", "what it is called", "the price of one; unit: euro \u2022 with tax")
    assert seen[1] == [
        seen[0][0],
        *(f"{line} -- {text}" for line, text in zip(seen[0][1:], said, strict=True)),
    ]


@pytest.mark.skipif(BIRD_DIR is None, reason="BIRD_DIR is not set: no copy of BIRD to import")
@pytest.mark.parametrize(("folder", "kept", "of"), [("dev", 279, 287), ("MINIDEV", 98, 100)])
def test_nearly_all_questions_of_bird_are_kept(folder, kept, of, tmp_path):
    source = Path(str(BIRD_DIR)) / folder
    status, _ = run_import("bird", source, "--out", tmp_path / "out", "--descriptions")
    assert status == 0
    assert len(load_splits(tmp_path / "out")["eval"]) == kept
    reasons, rows = left_out(tmp_path / "out", "eval") or ({}, 0)
    assert (sum(reasons.values()), rows) == (of - kept, of)


def test_another_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"no BIRD data in .*: name the folder of dev\.json"):
        read_bird(tmp_path)
