"""`python -m data import` and `python -m data fetch`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from data.cli import errors, fail, output, reporting_errors, say, warn
from data.settings import DataSettings
from data.sources.fetch import fetch_spider
from data.sources.report import ImportReport
from data.sources.spider import import_spider

import_app = typer.Typer(no_args_is_help=True, help="Convert a public data set to SQLEnv's format.")
fetch_app = typer.Typer(no_args_is_help=True, help="Download a public data set and import it.")

Force = Annotated[
    bool, typer.Option("--force", help="Replace OUT even if it is not from an import.")
]


@import_app.callback()
def _import() -> None:
    """Keep the name of the only command."""


@fetch_app.callback()
def _fetch() -> None:
    """Keep the name of the only command."""


@import_app.command("spider")
def import_spider_command(
    directory: Annotated[
        Path,
        typer.Argument(help="Spider's folder, with database/, train_spider.json and dev.json."),
    ],
    out: Annotated[Path, typer.Option(help="Data directory to write.")],
    force: Force = False,
) -> None:
    """Import Spider: execute every gold and keep the questions with one answer that fits."""
    with reporting_errors(), _progress_bars() as bar:
        report = import_spider(directory, out, force=force, progress=bar("running the golds"))
    _show(report, out)


@fetch_app.command("spider")
def fetch_spider_command(
    out: Annotated[
        Path | None, typer.Option(help="Data directory to write.", show_default="in the cache")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="URL of the archive.", show_default="SQLENV_SPIDER_URL")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the archive, checked before unpacking.")
    ] = None,
    force: Force = False,
) -> None:
    """Download the official Spider archive (CC BY-SA 4.0) and import it."""
    try:
        settings = DataSettings()
    except ValidationError as error:
        first = error.errors()[0]
        fail(f"SQLENV_{str(first['loc'][0]).upper()}={first['input']}: {first['msg']}")
    out = out or settings.cache_dir / "spider"
    with reporting_errors(), _progress_bars() as bar:
        result = fetch_spider(
            out, settings, url=url, sha256=sha256, force=force, progress=bar, notice=warn
        )
    _show(result.report, out)
    say(f"The archive is kept at {result.archive}; SHA-256 {result.sha256}")
    if not result.checked:
        say(
            "The checksum was not verified: to pin it, "
            f"set SQLENV_SPIDER_SHA256={result.sha256} or pass --sha256"
        )


def _show(report: ImportReport, out: Path) -> None:
    report.show(output)
    counts = f"{report.kept:,} questions on {report.databases} databases"
    say(f"Wrote {counts} to {out} in {report.wall_s:.1f} s")
    say(f"Train on it with: make train DATA={out}")


class _Amount(ProgressColumn):
    """Bytes and their speed for a transfer, rows for the golds."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = DownloadColumn()
        self._speed = TransferSpeedColumn()
        self._rows = MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.description == "running the golds":
            return self._rows.render(task)
        return Text.assemble(self._bytes.render(task), "  ", self._speed.render(task))


@contextmanager
def _progress_bars() -> Iterator[Callable[[str], Callable[[int, int | None], None]]]:
    """Yield `bar(phase)`, which starts a progress bar on stderr and returns its callback."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Amount(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bars:

        def start(phase: str) -> Callable[[int, int | None], None]:
            task = bars.add_task(phase, total=None)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield start
