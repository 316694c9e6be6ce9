"""The runs and evaluations of a folder as one HTML page, with links to their reports."""

from pathlib import Path
from typing import Any

from shared.run_files import REPORT
from trainer.errors import RunError
from trainer.evaluation.records import EvaluationFolder
from trainer.report.run_reader import read_if_there
from trainer.report.shell import environment
from trainer.run.folder import Run, how_to_resume, is_evaluation, read_json, runs_in

LISTING = "index.html"


def list_page(path: Path) -> str:
    """Return the page of a folder. Raise `RunError` if there is neither a run nor an evaluation."""
    runs = [_run(run) for run in runs_in(path)]
    folders = [one for one in sorted(path.iterdir()) if one.is_dir() and is_evaluation(one)]
    if not runs and not folders:
        raise RunError(
            f"{path} is not a run and holds none: name the folder of a run or an evaluation, "
            "or a folder of runs, such as runs/"
        )
    evaluations = list(map(_evaluation, folders))
    return (
        environment()
        .get_template("list.html.j2")
        .render(path=path, runs=runs, evaluations=evaluations, gaps=[])
    )


def _run(run: Run) -> dict[str, Any]:
    settings = read_json(run.config)
    return {
        "name": run.id,
        "link": _link(run.path),
        "resume": None if run.finished else how_to_resume(run.path, settings),
        "settings": settings,
        "summary": read_if_there(run.summary),
    }


def _evaluation(path: Path) -> dict[str, Any]:
    folder = EvaluationFolder(path)
    asked, result = read_json(folder.config)["evaluation"], read_if_there(folder.result)
    return {"name": path.name, "link": _link(path), "result": result, "asked": asked}


def _link(path: Path) -> str:
    """Return the report's address from the list, empty if it has not been made."""
    return f"{path.name}/{REPORT}" if (path / REPORT).is_file() else ""
