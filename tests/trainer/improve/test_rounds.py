"""`python -m trainer improve` end to end, and how its questions are chosen."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.trainer.small_data import make_data
from trainer.__main__ import app
from trainer.improve.report import Round
from trainer.improve.rounds import best, development_questions, practice_questions
from trainer.run.folder import read_json, read_lines

ROWS: list[dict[str, Any]] = [
    {"question_id": f"{name}-{number}", "database_name": name, "difficulty": "easy"}
    for name in "abcdefghij"
    for number in range(20)
]


def improve(data: Path, out: Path, *more: str) -> Any:
    sizes = ("--rounds", "1", "--questions", "6", "--samples", "1")
    arguments = ("improve", "--data", str(data), "--out", str(out), *sizes, "--seed", "1", *more)
    return CliRunner().invoke(app, arguments)


def result_in(out: Path) -> dict[str, Any]:
    result: dict[str, Any] = read_json(out / "improvement.json")
    for part in (result, *result["rounds"], result["before"], result["after"]):
        for name in ("seconds", "wall_s", "cpu_s"):
            part.pop(name, None)
    return result


def test_a_round_is_played_learnt_and_measured_once(tmp_path: Path) -> None:
    data, out = make_data(tmp_path / "data", questions=12), tmp_path / "improve"
    ran = improve(data, out, "--no-gold", "--eval-limit", "6")
    assert ran.exit_code == 0, ran.output
    first, phases = result_in(out), list(read_lines(out / "phases.jsonl"))
    assert [row["phase"] for row in phases] == [
        "round 0 development",
        *("round 0 play", "round 1 sft", "round 1 development"),
        *("before", "after"),
    ]
    shown = " ".join(ran.output.split())
    cost = (
        r"a round will take about [0-9.]+ (s|min).* on this machine: [0-9.]+ s to play 6 episodes"
    )
    assert len(re.findall(cost, shown)) == 1
    assert shown.index("a round will take") < shown.index("round 0 play")
    assert [row["development"]["n"] for row in first["rounds"]] == [3, 3]
    assert sum(first["rounds"][1]["demonstrations"].values()) >= 3
    assert not first["rounds"][1]["demonstrations"].keys() - {"run", "completed", "recovered"}
    assert first["after"]["questions"] == 6
    page = (out / "improvement.md").read_text()
    assert "from rewards alone" in page
    assert "## 1." in page, "transcripts"
    assert re.search(r"\| overall \| 6 \|", page)
    assert re.search(
        r"with the measurements: [0-9.]+ (s|min).*, and [0-9.]+ (s|min).* of CPU", page
    )
    assert (out / "improvement.png").read_bytes().startswith(b"\x89PNG")

    # the same command resumes: what is complete is read, what is missing is made again
    assert improve(data, out, "--no-gold", "--eval-limit", "6").exit_code == 0
    assert list(read_lines(out / "phases.jsonl")) == phases
    model = (out / "round-1" / "sft" / "latest").resolve() / "model"
    model.rename(tmp_path / "kept")  # as a later and better round deletes it
    assert improve(data, out, "--no-gold", "--eval-limit", "6").exit_code == 0
    assert list(read_lines(out / "phases.jsonl")) == phases
    (tmp_path / "kept").rename(model)
    shutil.rmtree(out / f"round-{first['best_round']}" / "after")
    shutil.rmtree(out / "round-1" / "development")
    assert improve(data, out, "--no-gold", "--eval-limit", "6").exit_code == 0
    assert result_in(out) == first
    ran = improve(data, out, "--gold")
    assert ran.exit_code == 1
    assert "was begun with other settings (gold was" in " ".join(ran.output.split())


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    data, out = make_data(tmp_path / "data", questions=12), tmp_path / "mine"
    out.mkdir()
    (out / "thesis.tex").touch()
    ran = improve(data, out)
    assert ran.exit_code == 1
    assert "holds other files: choose another --out" in " ".join(ran.output.split())
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    few = make_data(tmp_path / "few", questions=1)
    ran = improve(few, tmp_path / "new")
    assert ran.exit_code == 1
    assert "too few to keep some for measuring" in " ".join(ran.output.split())


def test_development_questions_have_databases_of_their_own() -> None:
    measured = development_questions(ROWS, 30, seed=1)
    held_out = {row["database_name"] for row in measured}
    assert (len(measured), len(held_out)) == (30, 2)
    played = practice_questions(ROWS, measured, 1000, 0, seed=1)
    assert sorted(played) == sorted(
        row["question_id"] for row in ROWS if row["database_name"] not in held_out
    )
    assert measured == development_questions(ROWS, 30, seed=1)
    assert measured != development_questions(ROWS, 30, seed=2)


def test_with_few_databases_questions_are_kept() -> None:
    rows = ROWS[:40]
    measured = [row["question_id"] for row in development_questions(rows, 100, seed=1)]
    assert len(measured) == 8, "a fifth"
    played = practice_questions(rows, development_questions(rows, 100, seed=1), 1000, 0, seed=1)
    assert sorted([*played, *measured]) == sorted(row["question_id"] for row in rows)


def test_each_round_plays_other_questions_until_all_were_played() -> None:
    measured = development_questions(ROWS, 20, seed=1)
    rounds = [practice_questions(ROWS, measured, 60, number, seed=1) for number in range(6)]
    counts = Counter(one for played in rounds for one in played)
    assert set(counts.values()) == {2}
    assert len(counts) == 180
    assert all(len(set(played)) == 60 for played in rounds)


def test_the_first_of_equal_rounds_is_the_best() -> None:
    rates = (0.2, 0.5, 0.4, 0.5)
    rounds = [
        Round(number, {"rate": rate, "n": 10, "ci95": [0.0, 1.0]}, {}, None)
        for number, rate in enumerate(rates)
    ]
    assert best(rounds).number == 1
