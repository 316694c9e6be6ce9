"""The pages beside that of a run: an evaluation's, and a list of runs."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.trainer.played_run import HOSTILE, record_run
from tests.trainer.report.test_page import Page, scripts
from trainer.__main__ import app
from trainer.evaluation.evaluate import EvalResult
from trainer.report import command
from trainer.run.folder import Run, append_lines, read_json, write_json

CLI = CliRunner()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_run(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "run"))


@pytest.fixture
def evaluation(recorded: Path, tmp_path: Path) -> Path:
    """An evaluation's folder, interrupted after its episodes."""
    folder, run = tmp_path / "evaluation", Run(recorded)
    episodes = EvalResult.read(run.evaluation("after", "greedy")).episodes
    lines = (
        one.as_line("eval", "greedy", 0, sample=0, prompt_tokens=9, sampled_tokens=5)
        for one in episodes
    )
    append_lines(folder / "episodes.jsonl", lines)
    settings = {"policy": "model", "split": "eval", "samples": 1, "standard": "strict"}
    config = read_json(run.config)["config"]
    write_json(folder / "config.json", {"evaluation": settings, "config": config})
    return folder


def test_an_evaluation_has_a_page(evaluation: Path, recorded: Path) -> None:
    assert CLI.invoke(app, ["report", str(evaluation)]).exit_code == 0
    page = Page((evaluation / "report.html").read_text())
    rate = read_json(recorded / "summary.json")["eval_success_after"]["greedy"]["overall"]
    assert f"{100 * rate['rate']:.1f} %" in page.text("success")
    assert f"All {rate['n']} questions" in page.text("questions")
    assert HOSTILE in page.text("questions")
    assert len(scripts(page)) == 1
    assert page.count("img") == 0
    assert "the evaluation is not finished" in page.text("gaps")


def test_a_folder_of_runs_is_listed_with_links(run: Path, evaluation: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other run"))
    (other / "summary.json").unlink()
    (run / "report.html").write_text("page")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/config.json").write_text("{")
    assert CLI.invoke(app, ["report", str(tmp_path)]).exit_code == 0
    page = Page((tmp_path / "index.html").read_text())
    links = [found["href"] for tag, found in page.elements if tag == "a"]
    assert "run/report.html" in links
    assert f"python -m trainer train --resume '{other}'" in page.text("runs")
    assert evaluation.name in page.text("evaluations")
    assert page.count("table", class_="filtered") == 2


def test_without_a_path_the_newest_finished_run_is_reported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "RUNS", tmp_path)
    stopped = Path(shutil.copytree(run, tmp_path / "stopped"))
    (stopped / "summary.json").unlink()
    (stopped / "config.json").touch()
    result = CLI.invoke(app, ["report"])
    assert (run / "report.html").exists()
    assert not (stopped / "report.html").exists()
    assert f"--resume {stopped}" in result.output.replace("\n", "")
    shutil.rmtree(run)
    CLI.invoke(app, ["report"])
    assert (stopped / "report.html").exists()
    shutil.rmtree(stopped)
    assert "no run is in" in CLI.invoke(app, ["report"]).output
