"""`python -m trainer report RUN`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shared.console import print_line
from trainer.cli import console, guarded

RUNS = Path("runs")


def report(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="PATH",
            help="Folder of a run or an evaluation, finished or not; or a folder of runs, to list "
            "them.",
            show_default="the newest finished run in runs/",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the page here.", show_default="PATH/report.html; of a list PATH/index.html"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory of the run.", show_default="from the run's settings"),
    ] = None,
) -> None:
    """Write a run, an evaluation or a list of runs as one HTML page.

    The page of a run has success, curves, rewards, every question and group, time and counts.
    Needs no network, no server and no GPU. The page of an unfinished run lists what is missing.
    """

    with guarded():
        from trainer.run.folder import check_writable, write_text

        page, file, gaps = _page(path or _newest(), data)
        file = out or file
        check_writable(file)
        write_text(file, page)
        for gap in gaps:
            print_line(console, f"missing: {gap.what}", "yellow")
        print_line(console, f"wrote {file} ({len(page.encode()) / 1e6:.1f} MB)")


def _newest() -> Path:
    """Return the newest finished run, else the newest one; name a newer one to resume."""
    from trainer.errors import RunError
    from trainer.run.folder import newest, runs_in

    finished, unfinished = newest(RUNS)
    if unfinished:
        print_line(console, unfinished, "yellow")
    for run in [finished] if finished else runs_in(RUNS):
        return run.path
    raise RunError(f"no run is in {RUNS}/: name the folder of a run, or make one: make train")


def _page(path: Path, data: Path | None) -> tuple[str, Path, Sequence[Any]]:
    """Return the page of a folder, where it belongs, and its gaps."""
    from trainer.report.evaluation_page import evaluation_page
    from trainer.report.listing import LISTING, list_page
    from trainer.report.page import render
    from trainer.report.run_reader import read_run
    from trainer.run.folder import Run, is_evaluation

    if is_evaluation(path):
        page, gaps = evaluation_page(path, data)
        return page, Run(path).report, gaps
    if path.is_dir() and not Run(path).config.exists():
        return list_page(path), path / LISTING, ()
    run = read_run(path, data)
    return render(run), run.folder.report, run.gaps
