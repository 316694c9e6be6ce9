"""`python -m trainer report RUN`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shared.console import print_line
from trainer.cli import console, guarded

RUNS = Path("runs")


def report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help="Folder of a run or an evaluation, finished or not; several runs, to compare "
            "them; or a folder of runs, to list them.",
            show_default="the newest finished run in runs/",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the page here.",
            show_default="PATH/report.html; of several runs comparison-RUN-RUN.html beside the "
            "first, of a list PATH/index.html",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory of the run.", show_default="from the run's settings"),
    ] = None,
) -> None:
    """Write a run, an evaluation or a comparison of runs as one HTML page, or a list of runs.

    The page of a run has success, curves, rewards, every question and group, time and counts.
    Needs no network, no server and no GPU. The page of an unfinished run lists what is missing.
    """

    with guarded():
        from trainer.run.folder import check_writable, write_text

        page, path, missing = _page(paths or [_newest()], data)
        path = out or path
        check_writable(path)
        write_text(path, page)
        for what in missing:
            print_line(console, f"missing: {what}", "yellow")
        size = len(page.encode()) / 1e6
        print_line(console, f"wrote {path} ({size:.1f} MB)")


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


def _page(paths: Sequence[Path], data: Path | None) -> tuple[str, Path, list[str]]:
    """Return the page of these folders, where it belongs, and what it lacks."""
    from trainer.report.comparison import comparison_page
    from trainer.report.evaluation_page import evaluation_page
    from trainer.report.listing import LISTING, list_page
    from trainer.report.page import render
    from trainer.report.run_reader import Gap, read_run
    from trainer.run.folder import Run, is_evaluation

    first, gaps = paths[0], list[Gap]()
    out = Run(first).report
    if len(paths) > 1:
        page, name, gaps = comparison_page(paths, data)
        out = first.resolve().parent / name
    elif is_evaluation(first):
        page, gaps = evaluation_page(first, data)
    elif first.is_dir() and not Run(first).config.exists():
        page, out = list_page(first), first / LISTING
    else:
        run = read_run(first, data)
        page, out, gaps = render(run), run.folder.report, [*run.gaps]
    return page, out, [gap.what for gap in gaps]
