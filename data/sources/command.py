"""`python -m data import` and `python -m data fetch`."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from data.choose import EVAL, TRAIN
from data.golds.execute import KEEP_EMPTY, KEEP_OVERSIZE, KEEP_TIES, KEEP_UNDECIDED, Reason
from data.sources.bird import import_bird
from data.sources.fetch import SPIDER_URL, fetch_spider
from data.sources.own import Request, import_csv, import_postgres, import_sqlite, name_of
from data.sources.report import ImportReport
from data.sources.spider import import_spider
from data.sources.split import Splitting
from shared.console import counted, one_line_errors, table_console

import_app = typer.Typer(
    no_args_is_help=True, help="Convert your own data or a public data set to SQLEnv's format."
)
fetch_app = typer.Typer(no_args_is_help=True, help="Download a public data set and import it.")


@fetch_app.callback()
def _fetch() -> None:
    """Keep the name of the only command."""


Importer = Callable[[list[str], Request], ImportReport]
FILES = "SQLite files, or folders with some. They are only read."
Databases = Annotated[list[str], typer.Argument(help=FILES)]
Directory = Annotated[Path, typer.Option(help="Data directory to write.")]
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
        "(see docs/trust.md).",
    ),
]
KeepUndecided = Annotated[
    bool,
    typer.Option(
        "--keep-undecided",
        help="Keep questions whose gold sorts or compares numbers or dates as text, or shows NULLs "
        "first, with another answer than by their values: the gold's is right.",
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option(help="Questions with their SQL: JSON, JSON lines or CSV (see docs/own-data.md)."),
]
EvalQuestions = Annotated[
    Path | None,
    typer.Option(
        help="Questions to measure on, in a file like QUESTIONS.",
        show_default="some of QUESTIONS: whole databases, or SQL that no other question has",
    ),
]
EvalShare = Annotated[
    float, typer.Option(min=0.01, max=0.9, help="Share of questions held out for evaluation.")
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
Out = Annotated[
    Path | None, typer.Option(help="Data directory to write.", show_default="NAME-data")
]


def _add_own(name: str, about: str, sources_are: str, importer: Importer) -> None:
    """Add the import of one kind of a user's own data."""

    @import_app.command(name, help=about)
    def command(
        sources: Annotated[list[str], typer.Argument(help=sources_are)],
        questions: Questions = None,
        eval_questions: EvalQuestions = None,
        out: Out = None,
        eval_share: EvalShare = Splitting.eval_share,
        seed: Seed = Splitting.seed,
        force: Force = False,
        keep_ties: KeepTies = False,
        keep_empty: KeepEmpty = False,
        keep_undecided: KeepUndecided = False,
    ) -> None:
        keep = _reasons(keep_ties, keep_empty, keep_undecided)
        splitting = Splitting(eval_share, seed)
        with one_line_errors():
            target = out or named_after(sources[0])
            request = Request(target, questions, eval_questions, splitting, force, keep)
            report = importer(sources, request)
        show_report(report, target)


_add_own(
    "sqlite", "Import your own SQLite databases with questions about them.", FILES, import_sqlite
)
_add_own(
    "csv",
    "Import CSV, Parquet or JSON-lines files as one database, with questions if you have some.",
    "Folder of .csv, .tsv, .parquet, .jsonl or .ndjson files: a table each; or one such file.",
    import_csv,
)
_add_own(
    "postgres",
    "Copy a PostgreSQL database, which is only read, with questions if you have some.",
    "URL of a PostgreSQL database: postgresql://...",
    import_postgres,
)


@import_app.command("bird")
def import_bird_command(
    directory: Annotated[
        Path,
        typer.Argument(help="BIRD's folder: dev.json with dev_databases/, train's, or MINIDEV."),
    ],
    out: Directory,
    evidence: Annotated[
        bool, typer.Option(help="Whether to append BIRD's evidence to each question.")
    ] = True,
    descriptions: Annotated[
        bool,
        typer.Option(
            "--descriptions", help="Let DESCRIBE show BIRD's descriptions of the columns."
        ),
    ] = False,
    force: Force = False,
    keep_ties: KeepTies = False,
    keep_empty: KeepEmpty = False,
    keep_undecided: KeepUndecided = False,
) -> None:
    """Import BIRD or its Mini-Dev: like Spider, with its evidence in the questions."""
    keep = _reasons(keep_ties, keep_empty, keep_undecided) | KEEP_OVERSIZE
    importer = partial(import_bird, evidence=evidence, descriptions=descriptions)
    _import(partial(importer, directory, out, force=force, keep=keep), out)


@import_app.command("spider")
def import_spider_command(
    directory: Annotated[
        Path,
        typer.Argument(help="Spider's folder, with database/, train_spider.json and dev.json."),
    ],
    out: Directory,
    force: Force = False,
    keep_ties: KeepTies = False,
    keep_empty: KeepEmpty = False,
    keep_undecided: KeepUndecided = False,
) -> None:
    """Import Spider: execute every gold and keep the questions with one answer that fits."""
    keep = _reasons(keep_ties, keep_empty, keep_undecided)
    _import(partial(import_spider, directory, out, force=force, keep=keep), out)


@fetch_app.command("spider")
def fetch_spider_command(
    out: Directory,
    url: Annotated[
        str, typer.Option(help="URL of the archive.", show_default="the official one")
    ] = SPIDER_URL,
    sha256: Annotated[
        str | None, typer.Option(help="SHA-256 of the archive, checked before unpacking.")
    ] = None,
    force: Force = False,
    keep_ties: KeepTies = False,
    keep_empty: KeepEmpty = False,
    keep_undecided: KeepUndecided = False,
) -> None:
    """Download the official Spider archive (CC BY-SA 4.0) and import it."""
    keep = _reasons(keep_ties, keep_empty, keep_undecided)
    _import(partial(fetch_spider, out, url, sha256, force=force, keep=keep), out)


def _reasons(ties: bool, empty: bool, undecided: bool) -> frozenset[Reason]:
    asked = {KEEP_TIES: ties, KEEP_EMPTY: empty, KEEP_UNDECIDED: undecided}
    return frozenset().union(*(reasons for reasons, wanted in asked.items() if wanted))


def named_after(source: Path | str) -> Path:
    """Return the default of --out."""
    return Path(f"{name_of(source)}-data")


def _import(importer: Callable[[], ImportReport], out: Path) -> None:
    with one_line_errors():
        report = importer()
    show_report(report, out)


def show_report(report: ImportReport, out: Path) -> None:
    """Print what was kept and dropped, and what to do next."""
    report.show(table_console())
    counts = f"{counted(report.kept, 'question')} on {counted(report.databases, 'database')}"
    typer.echo(f"wrote {counts} to {out} in {report.wall_s:.1f} s")
    directory = shlex.quote(str(out))
    database = shlex.quote(str(next(out.glob("databases/*/*.sqlite"))))
    kept = {split for split, count in report.splits.items() if count.kept}
    if kept == {TRAIN, EVAL}:
        typer.echo(f"Train on it with: make train DATA={directory}")
        typer.echo(f"or, from any folder: sqlenv train --data {shlex.quote(str(out.resolve()))}")
    elif TRAIN in kept:
        typer.echo("It has no eval questions, on which training is measured: import some too")
    elif kept:
        typer.echo("It has no training questions, so it is for evaluation and play:")
        typer.echo(f"  python -m trainer evaluate --data {directory}")
    else:
        typer.echo("It has no questions: import some with --questions, make some, or ask yours:")
        made = shlex.quote(f"{out.name}-questions")  # the default is perhaps this directory
        typer.echo(f"  python -m data questions {database} --out {made}")
        typer.echo(f"  python -m trainer play --db {database}")
