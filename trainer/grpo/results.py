"""The results of a finished job: the report, and what the terminal shows."""

import logging
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console

from shared.console import print_line
from trainer.report.page import run_page
from trainer.run.console import behaviour_table, success_table
from trainer.run.folder import Run, write_text

log = logging.getLogger(__name__)
Phases = Mapping[str, Mapping[str, Any]]  # phase -> mode -> `EvalResult.summary()`


def draw_report(folder: Run) -> None:
    """Write report.html. Log a failure only: the run is done, and its report can be drawn again."""
    try:
        write_text(folder.report, run_page(folder.path)[0])
    except Exception:
        command = shlex.join(["python", "-m", "trainer", "report", str(folder.path)])
        log.exception("the report was not drawn; try again with: %s", command)


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
            print_line(console, f"{name:12} {path}")
