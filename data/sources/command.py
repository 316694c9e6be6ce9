"""`python -m data import` and `python -m data fetch`."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from data.choose import TRAIN
from data.golds.execute import KEEP_EMPTY, KEEP_TIES, Reason
from data.settings import DataSettings
from data.sources.fetch import fetch_spider
from data.sources.report import ImportReport
from data.sources.spider import import_spider
from shared.console import failure, one_line_errors, table_console

import_app = typer.Typer(no_args_is_help=True, help="Convert a public data set to SQLEnv's format.")
fetch_app = typer.Typer(no_args_is_help=True, help="Download a public data set and import it.")

Force = Annotated[
    bool, typer.Option("--force", help="Replace OUT even if it is not from an import.")
]
KeepTies = Annotated[
    bool,
    typer.Option(
        "--keep-ties",
        help="Keep questions with several right answers by a tie in ORDER BY or LIMIT: any member "
        "of the tie is right.",
    ),
]
KeepEmpty = Annotated[
    bool,
    typer.Option(
        "--keep-empty",
        help="Keep questions whose gold returns no rows, or only NULL: [], none and null are right "
        "(see docs/trust-answers.md).",
    ),
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
    keep_ties: KeepTies = False,
    keep_empty: KeepEmpty = False,
) -> None:
    """Import Spider: execute every gold and keep the questions with one answer that fits."""
    with one_line_errors():
        keep = _reasons(keep_ties, keep_empty)
        report = import_spider(directory, out, force=force, keep=keep)
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
    keep_ties: KeepTies = False,
    keep_empty: KeepEmpty = False,
) -> None:
    """Download the official Spider archive (CC BY-SA 4.0) and import it."""
    try:
        settings = DataSettings()
    except ValidationError as error:
        first = error.errors()[0]
        setting = f"SQLENV_{str(first['loc'][0]).upper()}={first['input']}"
        raise failure(f"{setting}: {first['msg']}") from error
    out = out or settings.cache_dir / "spider"
    with one_line_errors():
        keep = _reasons(keep_ties, keep_empty)
        result = fetch_spider(out, settings, url=url, sha256=sha256, force=force, keep=keep)
    _show(result.report, out)
    typer.echo(f"The archive is kept at {result.archive}; SHA-256 {result.sha256}")
    if not result.checked:
        pin = f"set SQLENV_SPIDER_SHA256={result.sha256} or pass --sha256"
        typer.echo(f"The checksum was not verified: to pin it, {pin}")


def _reasons(keep_ties: bool, keep_empty: bool) -> frozenset[Reason]:
    return (KEEP_TIES if keep_ties else frozenset()) | (KEEP_EMPTY if keep_empty else frozenset())


def _show(report: ImportReport, out: Path) -> None:
    report.show(table_console())
    counts = f"{report.kept:,} questions on {report.databases} databases"
    typer.echo(f"wrote {counts} to {out} in {report.wall_s:.1f} s")
    if report.splits[TRAIN].kept:
        typer.echo(f"Train on it with: make train DATA={out}")
        return
    typer.echo("It has no training questions, so it is for evaluation and play:")
    typer.echo(f"  python -m trainer evaluate --data {out}")
    typer.echo(f"  python -m trainer play --db {out}/databases/NAME/NAME.sqlite")
