"""The results of a finished job: transcripts, the report, and what the terminal shows."""

import logging
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console

from shared.console import print_line
from shared.run_files import RunSummary
from trainer.evaluation.evaluate import EvalResult
from trainer.grpo.resume import short_path
from trainer.report.page import report
from trainer.run.console import behaviour_table, cost_lines, limit_lines, success_table
from trainer.run.folder import Run, write_text
from trainer.run.transcripts import transcripts

log = logging.getLogger(__name__)
Phases = Mapping[str, Mapping[str, Any]]  # phase -> mode -> `EvalResult.summary()`


def write_transcripts(
    folder: Run, texts: Mapping[str, str], results: Mapping[str, Mapping[str, EvalResult]]
) -> None:
    """Write transcripts.md. texts: question by its id; results: by phase and mode."""
    page = transcripts(
        texts,
        results["random"]["sampled"].by_question(),
        results["before"]["greedy"].by_question(),
        results["after"]["greedy"].by_question(),
        heading=f"Transcripts of {folder.id}",
    )
    write_text(folder.transcripts, page)


def draw_report(folder: Run) -> None:
    """Write report.html. Log a failure only: the run is done, and its report can be drawn again."""
    try:
        write_text(folder.report, report(folder.path))
    except Exception:
        command = shlex.join(["python", "-m", "trainer", "report", short_path(folder.path)])
        log.exception("the report was not drawn; try again with: %s", command)


def print_result(
    console: Console, folder: Run, phases: Phases, summary: RunSummary, questions: int
) -> None:
    """Print success, behaviour, cost and the files of a training run."""
    print_success(console, phases, questions)
    for line in (*cost_lines(summary["cost"]), *limit_lines(summary)):
        print_line(console, line)
    print_files(console, folder, ("summary", "curve", "transcripts", "report", "model"))


def print_success(console: Console, phases: Phases, questions: int) -> None:
    """Print the table of success, and that of behaviour before and after."""
    title = f"Success in % on {questions} eval questions, with 95 % intervals"
    console.print(success_table(title, phases))
    trained = {phase: phases[phase] for phase in ("before", "after")}
    console.print(behaviour_table("What changed in behaviour", trained))


def print_files(console: Console, folder: Run, names: Iterable[str]) -> None:
    """Print the paths of those of the run's files `names` that exist."""
    for name in names:
        path = getattr(folder, name)
        if path.exists():
            print_line(console, f"{name:12} {short_path(path)}")
