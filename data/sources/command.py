"""`python -m data import ...` and `python -m data fetch ...`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
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

from data.sources.report import ImportReport
from shared.errors import SQLEnvError

import_app = typer.Typer(
    no_args_is_help=True, help="Bring a data set of others into SQLEnv's format."
)
fetch_app = typer.Typer(no_args_is_help=True, help="Download a data set of others, then import it.")

_console = Console()
_errors = Console(stderr=True)

Out = Annotated[Path, typer.Option(help="The data directory to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace OUT even if no import made it.")]


@import_app.callback()
def _import() -> None:
    """A callback, so that the one command keeps its name."""


@fetch_app.callback()
def _fetch() -> None:
    """Likewise."""


@import_app.command("spider")
def import_spider_command(
    directory: Annotated[
        Path,
        typer.Argument(help="Spider's folder, with database/, train_spider.json and dev.json."),
    ],
    out: Out,
    force: Force = False,
) -> None:
    """Execute every gold of Spider and keep the questions with one answer that fits what an agent
    sees."""
    # here: it loads SQLite and sqlglot, which --help needs not
    from data.sources.spider import import_spider

    with _errors_shown(), _bars() as bar:
        report = import_spider(directory, out, force=force, progress=bar("running the golds"))
    _tell(report, out)


@fetch_app.command("spider")
def fetch_spider_command(
    out: Annotated[
        Path | None, typer.Option(help="The data directory to write; default: in the cache.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Another place of the archive; default: SQLENV_SPIDER_URL.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="The archive's SHA-256, checked before it is unpacked.")
    ] = None,
    force: Force = False,
) -> None:
    """Download the official Spider archive (CC BY-SA 4.0) and import it."""
    from data.settings import DataSettings
    from data.sources.fetch import fetch_spider

    try:
        settings = DataSettings()
    except ValidationError as error:
        first = error.errors()[0]
        fail(ValueError(f"SQLENV_{str(first['loc'][0]).upper()}={first['input']}: {first['msg']}"))
    place = out or settings.cache_dir / "spider"
    with _errors_shown(), _bars() as bar:
        fetched = fetch_spider(
            place, settings, url=url, sha256=sha256, force=force, progress=bar, notice=_warn
        )
    _tell(fetched.report, place)
    _say(f"The archive is kept at {fetched.archive}; SHA-256 {fetched.sha256}")
    if not fetched.checked:
        _say(
            f"Nothing vouches for that checksum: pin it with SQLENV_SPIDER_SHA256={fetched.sha256} or --sha256"
        )


def _tell(report: ImportReport, out: Path) -> None:
    report.show(_console)
    _say(
        f"{report.kept:,} questions on {report.databases} databases in {report.wall_s:.1f} s: {out}"
    )
    _say(f"Train on it with: make train DATA={out}")


def _say(line: str) -> None:
    _console.print(line, markup=False, highlight=False, soft_wrap=True)


def _warn(line: str) -> None:
    _errors.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _errors_shown() -> Iterator[None]:
    """An error of ours or of the file system is one line and exit status 1."""
    try:
        yield
    except (SQLEnvError, OSError) as error:
        fail(error)


def fail(error: Exception) -> NoReturn:
    """Prints the error and exits with 1."""
    _errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)


class _Amount(ProgressColumn):
    """Bytes and their speed for a transfer, rows for the golds."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._speed, self._rows = (
            DownloadColumn(),
            TransferSpeedColumn(),
            MofNCompleteColumn(),
        )

    def render(self, task: Task) -> Text:
        if task.description == "running the golds":
            return self._rows.render(task)
        return Text.assemble(self._bytes.render(task), "  ", self._speed.render(task))


@contextmanager
def _bars() -> Iterator[Callable[[str], Callable[[int, int | None], None]]]:
    """`bar(phase)` begins a progress bar on stderr and returns what moves it."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Amount(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=_errors, transient=True) as shown:

        def begin(phase: str) -> Callable[[int, int | None], None]:
            task = shown.add_task(phase, total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield begin
