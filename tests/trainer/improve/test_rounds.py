"""`python -m trainer improve` end to end, and how its questions are chosen."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from env_server.commands import command
from shared.run_stats import Rate
from tests.trainer.small_data import make_data
from trainer.__main__ import app
from trainer.config.settings import GRPOConfig
from trainer.improve.improvement_report import Round, charts, result_of, write_report
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
    parts = (result, *result["rounds"], result["before"] or {}, result["after"] or {})
    for part in parts:
        for name in ("seconds", "wall_s", "cpu_s"):
            part.pop(name, None)
    return result


REWARDS = ("--labels", "rewards", "--eval-limit", "6")


def test_a_round_is_played_learnt_and_measured(tmp_path):
    data, out = make_data(tmp_path / "data", questions=12), tmp_path / "improve"
    ran = improve(data, out, *REWARDS)
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


@pytest.mark.slow
def test_the_same_command_reads_what_is_complete_and_makes_what_is_missing(tmp_path):
    data, out = make_data(tmp_path / "data", questions=12), tmp_path / "improve"
    assert improve(data, out, *REWARDS).exit_code == 0
    first, phases = result_in(out), list(read_lines(out / "phases.jsonl"))
    assert improve(data, out, *REWARDS).exit_code == 0
    assert list(read_lines(out / "phases.jsonl")) == phases
    model = (out / "round-1" / "sft" / "latest").resolve() / "model"
    model.rename(tmp_path / "kept")  # as a later and better round deletes it
    measured = out / "round-1" / "development" / "evaluation.json"
    whole = measured.read_bytes()
    measured.write_bytes(whole.replace(b'"episodes_missing": 0', b'"episodes_missing": 1'))
    assert improve(data, out, *REWARDS).exit_code == 0
    measured.write_bytes(whole)
    assert list(read_lines(out / "phases.jsonl")) == phases
    (tmp_path / "kept").rename(model)
    shutil.rmtree(out / f"round-{first['best_round']}" / "after")
    shutil.rmtree(out / "round-1" / "development")
    assert improve(data, out, *REWARDS).exit_code == 0
    assert result_in(out) == first
    ran = improve(data, out, "--labels", "rewards", "--eval-limit", "3")
    assert "was measured with --eval-limit 6" in " ".join(ran.output.split())
    (out / "round-2").mkdir()
    shutil.copytree(out / "round-1" / "development", out / "round-2" / "development")
    ran = improve(data, out, *REWARDS)
    assert "has 2 rounds, more than 1: give --rounds 2 or more" in " ".join(ran.output.split())
    asked = data / "questions" / "questions_train.json"
    asked.write_text(asked.read_text().replace("?", " now?"))
    ran = improve(data, out, *REWARDS)
    assert "was begun with other settings (data_digest was" in " ".join(ran.output.split())
    ran = improve(data, out, "--labels", "gold")
    assert ran.exit_code == 1
    assert "was begun with other settings (labels was" in " ".join(ran.output.split())


def test_a_folder_of_other_files_is_refused(tmp_path):
    data, out = make_data(tmp_path / "data", questions=12), tmp_path / "mine"
    out.mkdir()
    (out / "thesis.tex").touch()
    ran = improve(data, out)
    assert ran.exit_code == 1
    assert "holds other files: choose another --out" in " ".join(ran.output.split())
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
    ran = improve(data, out / "thesis.tex")
    assert "can't write" in " ".join(ran.output.split())
    few = make_data(tmp_path / "few", questions=1)
    ran = improve(few, tmp_path / "new")
    assert ran.exit_code == 1
    assert "too few to keep some for measuring" in " ".join(ran.output.split())


def test_development_questions_have_databases_of_their_own():
    measured = development_questions(ROWS, 30, seed=1)
    held_out = {row["database_name"] for row in measured}
    assert (len(measured), len(held_out)) == (30, 2)
    played = practice_questions(ROWS, measured, 1000, 0, seed=1)
    assert sorted(played) == sorted(
        row["question_id"] for row in ROWS if row["database_name"] not in held_out
    )
    assert measured == development_questions(ROWS, 30, seed=1)
    assert measured != development_questions(ROWS, 30, seed=2)


def test_with_few_databases_questions_are_kept():
    rows = ROWS[:40]
    measured = [row["question_id"] for row in development_questions(rows, 100, seed=1)]
    assert len(measured) == 8, "a fifth"
    played = practice_questions(rows, development_questions(rows, 100, seed=1), 1000, 0, seed=1)
    assert sorted([*played, *measured]) == sorted(row["question_id"] for row in rows)


def test_each_round_plays_other_questions_until_all_were_played():
    measured = development_questions(ROWS, 20, seed=1)
    rounds = [practice_questions(ROWS, measured, 60, number, seed=1) for number in range(6)]
    counts = Counter(one for played in rounds for one in played)
    assert set(counts.values()) == {2}
    assert len(counts) == 180
    assert all(len(set(played)) == 60 for played in rounds)


def test_the_first_of_equal_rounds_is_the_best():
    rates = (0.2, 0.5, 0.4, 0.5)
    rounds = [
        Round(number, rate_of(rate, 10), None, None, {}, None) for number, rate in enumerate(rates)
    ]
    assert best(rounds).number == 1
    agreeing = [replace(one, agreement=rate_of(one.number / 10, 10)) for one in rounds]
    assert best(agreeing).number == 3, "success is not what it is chosen by"


def rate_of(rate: float | None, n: int) -> Rate:
    return {"rate": rate, "n": n, "ci95": [0.0, 1.0]}


def without_golds(data: Path) -> Path:
    folder = data / "questions"
    rows = json.loads((folder / "questions_train.json").read_text())
    names = ("question_id", "question_text", "database_name")
    kept = [{name: row[name] for name in names} for row in rows]
    for path in folder.iterdir():
        path.unlink()
    (folder / "open_questions.json").write_text(json.dumps(kept))
    return data


@pytest.mark.slow
def test_it_improves_on_open_questions_by_agreement(tmp_path):
    data, out = without_golds(make_data(tmp_path / "data", questions=8)), tmp_path / "improve"
    refused = improve(data, out, "--labels", "rewards")
    assert (refused.exit_code, out.exists()) == (1, False)
    assert "has a gold: use --labels agreement" in " ".join(refused.output.split())
    refused = improve(data, out)  # one attempt at each
    assert "1 attempts at a question can't agree: give --samples 3" in refused.output
    ran = improve(data, out, "--samples", "4")
    assert ran.exit_code == 0, ran.output
    result = result_in(out)
    assert result["settings"]["labels"] == "agreement"
    assert (result["before"], result["after"]) == (None, None)
    start, learned = result["rounds"]
    assert learned["winning_share"]["rate"] >= start["winning_share"]["rate"] > 0.3
    assert (start["labels"], learned["development"]) == (None, rate_of(None, 3))
    assert 1 <= learned["labels"]["n"] <= 6
    assert sum(learned["demonstrations"].values()) >= 1
    assert learned["demonstrations"].keys() <= {"agreed", "mended"}
    play = read_json(out / "round-0" / "play" / "evaluation.json")
    assert play["success"]["overall"]["outcomes"].keys() <= {"answered", "budget", "abandoned"}
    assert play["success"]["overall"]["accuracy_when_answered"] is None
    verified = CliRunner().invoke(command, ["verify", str(out / "round-0" / "play")])
    assert verified.exit_code == 0, verified.output
    page = (out / "improvement.md").read_text()
    assert "from agreement alone" in page
    assert "agreement, not accuracy" in page
    assert "labels right" not in page
    assert CliRunner().invoke(app, ["report", str(out / "round-0" / "play")]).exit_code == 0
    ran = CliRunner().invoke(app, ["compare", *[str(out / "round-0" / "play")] * 2])
    assert "without a gold, no success is known" in " ".join(ran.output.split())


def test_golds_are_shown_beside_agreement(tmp_path):
    start = Round(0, rate_of(0.2, 50), rate_of(0.4, 50), None, {}, None)
    later = Round(1, rate_of(0.1, 50), rate_of(0.6, 50), rate_of(0.75, 30), {}, None)
    settings = {"labels": "agreement", "model_name": "m", "samples": 5}
    result = result_of(settings, [start, later], best([start, later]), [], None, None)
    assert result["best_round"] == 1
    write_report(tmp_path, result, GRPOConfig())
    page = (tmp_path / "improvement.md").read_text()
    assert "| 1 (best) | 60.0 [0, 100] | 30 | 75.0 [0, 100] | 10.0 [0, 100] | - |" in page
    assert "What golds say is shown, but was not used." in page
    reached, labels = charts(result)
    assert [[point.y for point in one.points] for one in reached.series] == [
        [0.4, 0.6],
        [0.75],
        [0.2, 0.1],
    ]
    assert [(point.x, point.y) for point in labels.series[0].points] == [(1, 30)]
