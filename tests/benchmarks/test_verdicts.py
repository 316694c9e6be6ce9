"""The table of pairs: agreements, reasons for disagreements, and what fails the command."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from benchmarks.verdicts import RULES, Pair, compare, load_pairs, main
from tests.conftest import make_database

SPIDER_DIR = os.environ.get("SPIDER_DIR")
GOLD = "SELECT name, age FROM people"
PEOPLE = """
CREATE TABLE people (name TEXT, age INTEGER);
INSERT INTO people VALUES ('Ann', 30), ('Bob', 30), ('Cy', 20), ('Cy', 20);
"""


@pytest.fixture
def spider(tmp_path: Path) -> Path:
    make_database(tmp_path / "database" / "p" / "p.sqlite", PEOPLE)
    return tmp_path


def pair(
    number: int, pred: str, official: bool, gold: str = GOLD, status: str = "ok"
) -> dict[str, Any]:
    return {
        "dev_idx": number, "db_id": "p", "question": "?", "gold": gold, "pred": pred,
        "pred_status": status,
        "official_ex": official, "official_ex_keep_distinct": official,
    }  # fmt: skip


def write(spider: Path, *pairs: dict[str, Any]) -> Path:
    path = spider / "verdict_pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, pairs)) + "\n\n", encoding="utf-8")
    return path


def run(*args: object, **env: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(
        app, list(map(str, args)), env={"COLUMNS": "200", "SPIDER_DIR": "", **env}
    )
    return result.exit_code, result.output


PAIRS = [
    pair(0, "SELECT name, age FROM people ORDER BY name DESC", True),
    pair(1, "SELECT age, name FROM people", True),
    pair(2, "SELECT DISTINCT name, age FROM people", False),
    pair(3, "SELECT name FROM people WHERE age = 30 ORDER BY name DESC LIMIT 1", False,
         gold="SELECT name FROM people ORDER BY age DESC, 1 = 1 LIMIT 1"),
    pair(4, "SELECT nam FROM people", False, status="pred_error"),
    pair(5, "SELECT name, age FROM people", False, status="pred_error"),
]  # fmt: skip


def test_each_disagreement_has_its_reason(spider: Path) -> None:
    found = compare(spider, [Pair.model_validate(one) for one in PAIRS])
    assert (found.pairs, found.compared, found.official_right) == (6, 4, 2)
    assert {(one.standard, one.dev_idx, one.why) for one in found.disagreements} == {
        ("strict", 1, "column order"), ("strict, ties", 1, "column order"),
        ("bird", 1, "column order"),
        ("bird", 2, "duplicate rows"), ("strict, ties", 3, "a tie of the gold's"),
    }  # fmt: skip
    assert found.agree == {"strict": 3, "spider": 4, "bird": 2, "strict, ties": 2}
    assert len(found.ran_otherwise) == 1
    assert "dev 5" in found.ran_otherwise[0]
    assert found.problems == []


def test_the_command_lists_all_and_writes_json(spider: Path, tmp_path: Path) -> None:
    write(spider, *PAIRS)
    status, output = run("--spider", spider, "--json", tmp_path / "out.json")
    assert status == 0
    assert (
        "dev 1 (p): official right; wrong by strict (column order); bird (column order)" in output
    )
    assert "pred  SELECT DISTINCT name, age FROM people" in output
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (report["compared"], report["agree"]["spider"], len(report["disagreements"])) == (
        4,
        4,
        5,
    )
    assert run(SPIDER_DIR=str(spider))[0] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (pair(7, "SELECT name, age + 1 FROM people", True), "spider agrees on 4 of 5"),
        (pair(8, "SELECT name, 31 FROM people", True), "strict differs on dev 8 by values"),
        (
            pair(9, "SELECT nam FROM people", True),
            "strict differs on dev 9 by it does not run here",
        ),
    ],
)
def test_a_verdict_that_can_not_be_explained_fails_the_command(
    spider: Path, wrong: dict[str, Any], message: str
) -> None:
    write(spider, *PAIRS, wrong)
    status, output = run("--spider", spider)
    assert status == 1
    assert message in output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"db_id": "q"}, "no database at"),
        ({"gold": "SELECT nam FROM people"}, "the gold of dev 0 (p) fails"),
        (
            {"official_ex_keep_distinct": "perhaps"},
            "verdict_pairs.jsonl:1 is no pair: official_ex_keep_distinct",
        ),
    ],
)
def test_bad_input_is_named(spider: Path, change: dict[str, Any], message: str) -> None:
    write(spider, {**PAIRS[0], **change})
    status, output = run("--spider", spider)
    assert status == 2
    assert message in output


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    status, output = run()
    assert (status, "--spider" in output, "SPIDER_DIR" in output) == (2, True, True)
    status, output = run("--spider", tmp_path)
    assert (status, "can't read the pairs" in output, "--pairs" in output) == (2, True, True)


def test_numbers_that_can_not_be_written_are_shown_first(spider: Path) -> None:
    write(spider, *PAIRS)
    status, output = run("--spider", spider, "--json", "/dev/null/a.json")
    assert status == 2
    assert "every disagreement" in output
    assert "error: can't write" in output


@pytest.mark.skipif(SPIDER_DIR is None, reason="SPIDER_DIR is not set: no copy of Spider")
def test_spiders_standard_is_the_official_evaluators() -> None:
    spider = Path(str(SPIDER_DIR))
    found = compare(spider, load_pairs(spider / "verdict_pairs.jsonl"))
    assert (found.pairs, found.compared) == (623, 320)
    assert found.agree["spider"] >= 0.99 * found.compared
    assert {one.why for one in found.disagreements if one.standard == "strict"} == {"column order"}
    assert found.problems == []
    assert all(found.agree[name] > 300 for name in RULES)
