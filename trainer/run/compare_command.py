"""`python -m trainer compare RUN RUN ...`. Imports torch late, so that help works without it."""

from pathlib import Path
from typing import Annotated

import typer

from trainer.run.options import console, guarded


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN ...", help="Folders of runs or evaluations.")
    ],
    out: Annotated[Path, typer.Option(help="Picture of the learning curves.")] = Path(
        "comparison.png"
    ),
) -> None:
    """Compare runs and evaluations with the first of them, question by question.

    Of a run, its greedy measurement after training counts. Prints the success of each, what it
    gains and loses against the first on the questions of both, and which settings differ, and draws
    the learning curves of all in one picture.
    """
    with guarded():
        from trainer.run.comparison import compare_runs

        compare_runs(paths, out, console)
