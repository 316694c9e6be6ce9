"""`python -m trainer report RUN`."""

from pathlib import Path
from typing import Annotated

import typer

from shared.console import print_line
from trainer.run.options import console, guarded

RUNS = Path("runs")


def report(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="Folder of a run or an evaluation, finished or not.",
            show_default="the newest run in runs/",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the page here.", show_default="PATH/report.html")
    ] = None,
) -> None:
    """Write a run or an evaluation as one HTML page.

    The page of a run has success, curves, rewards, every question and group, time and counts.
    Needs no network, no server and no GPU. The page of an unfinished run lists what is missing.
    """
    with guarded():
        from trainer.errors import RunError
        from trainer.report.page import evaluation_page, run_page
        from trainer.run.folder import Run, check_writable, is_evaluation, runs_in, write_text

        if path is None and (runs := runs_in(RUNS)):
            path = runs[0].path
        if path is None:
            raise RunError(f"no run is in {RUNS}/: name the folder of one, or make one: make train")
        page, gaps = (evaluation_page if is_evaluation(path) else run_page)(path)
        file = out or Run(path).report
        check_writable(file)
        write_text(file, page)
        for gap in gaps:
            print_line(console, f"missing: {gap.what}", "yellow")
        print_line(console, f"wrote {file} ({len(page.encode()) / 1e6:.1f} MB)")
