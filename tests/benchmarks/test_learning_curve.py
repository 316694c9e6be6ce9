"""One curve of runs that followed one another."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.curve import joined_curve, joined_rows, measurements
from tests.benchmarks.test_learning import finished
from trainer.errors import RunError
from trainer.run.folder import append_lines, write_json


def logged(folder: Path, successes: list[float]) -> Any:
    run = finished(tmp_path=folder)
    rows = [{"step": n, "success": one, "reward": one - 0.1} for n, one in enumerate(successes, 1)]
    append_lines(run.run.metrics, [{"step": 0, "eval_n": 4, "eval_greedy_success": 0.5}, *rows])
    run.summary["train_steps"] = len(successes)
    return run


def evaluation(folder: Path, mode: str, rate: float, questions: int = 350) -> Path:
    overall = {"success": {"rate": rate, "n": 350, "ci95": [rate, rate]}, "mean_reward": rate}
    result = {"mode": mode, "success": {"overall": overall}, "questions": questions}
    folder.mkdir()
    write_json(folder / "evaluation.json", {**result, "digests": {"data": "d"}})
    return folder


def test_steps_are_numbered_through_all_runs(tmp_path: Path) -> None:
    runs = [logged(tmp_path / "a", [0.1, 0.2]), logged(tmp_path / "b", [0.3])]
    assert [(row["step"], row["success"]) for row in joined_rows(runs)] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.3),
    ]
    before = evaluation(tmp_path / "before", "greedy", 0.25)
    after = evaluation(tmp_path / "after", "greedy", 0.5)
    assert joined_curve(runs, [before], [after], "a model").startswith(b"\x89PNG")


def test_evaluations_of_different_questions_are_refused(tmp_path: Path) -> None:
    before = evaluation(tmp_path / "before", "greedy", 0.25)
    after = evaluation(tmp_path / "after", "greedy", 0.5, questions=200)
    with pytest.raises(RunError, match=r"of different questions: .*before, .*after"):
        joined_curve([logged(tmp_path / "run", [0.1])], [before], [after], "a model")


def test_evaluations_are_taken_by_mode(tmp_path: Path) -> None:
    folders = [evaluation(tmp_path / mode, mode, 0.5) for mode in ("greedy", "sampled")]
    assert set(measurements(folders)) == {"greedy", "sampled"}
    assert measurements(folders)["sampled"]["overall"]["n"] == 350


def test_an_unfinished_evaluation_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"{tmp_path} holds no finished evaluation: repeat"):
        measurements([tmp_path])


def test_two_evaluations_of_a_mode_are_refused(tmp_path: Path) -> None:
    folders = [evaluation(tmp_path / name, "greedy", 0.5) for name in ("a", "b")]
    with pytest.raises(RunError, match="second greedy evaluation"):
        measurements(folders)


def test_runs_without_a_step_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="logged no training step"):
        joined_rows([logged(tmp_path, [])])
