"""`python -m trainer report RUN`."""

from pathlib import Path
from typing import Annotated

import typer

from shared.console import print_line
from trainer.cli import console, guarded


def report(
    run: Annotated[
        Path, typer.Argument(help="Folder of the run, finished or not.", show_default=True)
    ] = Path("runs/latest"),
    out: Annotated[
        Path | None, typer.Option(help="Write the page here.", show_default="RUN/report.html")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory of the run.", show_default="from the run's settings"),
    ] = None,
) -> None:
    """Write a run as one HTML page: success, curves, rewards, transcripts, groups, time, counts.

    Needs no network, no server and no GPU. The page of an unfinished run lists what is missing.
    """

    with guarded():
        from trainer.report.page import render
        from trainer.report.run_reader import read_run
        from trainer.run.folder import check_writable, write_text

        loaded = read_run(run, data)
        path = out or loaded.folder.report
        check_writable(path)
        page = render(loaded)
        write_text(path, page)
        for gap in loaded.gaps:
            print_line(console, f"missing: {gap.what}", "yellow")
        size = len(page.encode()) / 1e6
        print_line(console, f"wrote {path} ({size:.1f} MB)")
