"""The runs and evaluations of a folder as one HTML page, with links to their reports."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.run_files import REPORT
from trainer.errors import RunError
from trainer.evaluation.records import EvaluationFolder
from trainer.report.comparison import COMPARISON
from trainer.report.run_reader import Reader
from trainer.report.shell import environment
from trainer.run.folder import Run, how_to_resume, is_evaluation, read_json, runs_in

LISTING = "index.html"


def list_page(path: Path) -> str:
    """Return the page of a folder. Raise `RunError` if there is neither a run nor an evaluation."""
    runs = [_row(run) for run in runs_in(path)]
    evaluations = [
        _evaluation(one) for one in sorted(path.iterdir()) if one.is_dir() and is_evaluation(one)
    ]
    if not runs and not evaluations:
        raise RunError(
            f"{path} is not a run and holds none: name the folder of a run or an evaluation, "
            "several runs to compare them, or a folder of runs, such as runs/"
        )
    template = environment().get_template("list.html.j2")
    comparisons = sorted(one.name for one in path.glob(f"{COMPARISON}*.html"))
    return template.render(
        path=path, runs=runs, evaluations=evaluations, comparisons=comparisons, gaps=[]
    )


def _row(run: Run) -> dict[str, Any]:
    summary: Mapping[str, Any] = Reader().attempt(run.summary, read_json) or {}
    settings: Mapping[str, Any] = read_json(run.config)
    return {
        "name": run.id,
        "link": _link(run.path),
        "resume": None if run.finished else how_to_resume(run.path, settings),
        "settings": settings,
        "summary": summary,
    }


def _evaluation(path: Path) -> dict[str, Any]:
    folder = EvaluationFolder(path)
    result: Mapping[str, Any] = Reader().attempt(folder.result, read_json) or {}
    asked = read_json(folder.config)["evaluation"]
    return {"name": path.name, "link": _link(path), "result": result, "asked": asked}


def _link(path: Path) -> str:
    """Return the report's address from the list, empty if it has not been made."""
    return f"{path.name}/{REPORT}" if (path / REPORT).is_file() else ""
