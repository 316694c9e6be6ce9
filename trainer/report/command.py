"""`python -m trainer report RUN`."""

from pathlib import Path
from typing import Annotated

import typer

from trainer.cli import console, guarded


def report(
    run: Annotated[
        Path, typer.Argument(help="A run's folder, finished or not.", show_default=True)
    ] = Path("runs/latest"),
    out: Annotated[
        Path | None, typer.Option(help="The page.", show_default="RUN/report.html")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="The run's data directory, for its questions' words.",
            show_default="the run's",
        ),
    ] = None,
) -> None:
    """A run as one HTML page: curves, rewards, transcripts, groups, time, controls, counts,
    settings.

    It needs no network, no server and no GPU, and takes seconds. A run that is under way or was
    stopped gives a page that says what is missing.
    """

    def job() -> None:
        from trainer.report.page import render
        from trainer.report.source import read_run
        from trainer.run.folder import check_writable, write_text

        record = read_run(run, data)
        path = out or record.run.report
        check_writable(path)
        page = render(record)
        write_text(path, page)
        for gap in record.gaps:
            console.print(
                f"missing: {gap.what}",
                style="yellow",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        size = len(page.encode()) / 1e6
        console.print(f"{path}  {size:.1f} MB", markup=False, highlight=False, soft_wrap=True)

    guarded(job)
