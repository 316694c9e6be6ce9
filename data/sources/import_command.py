"""`python -m data import` and `python -m data fetch`."""

import inspect
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from data.choose import EVAL, TRAIN, Splitting
from data.golds.check_gold import KEEP, Reason
from data.sources.bird import read_bird
from data.sources.import_source import Source, import_source
from data.sources.own import add_questions, name_of, read_csv, read_postgres, read_sqlite
from data.sources.quoted_names import add_quoted_copies
from data.sources.report import ImportReport
from data.sources.spider import SPIDER_URL, fetch_spider, read_spider
from shared.console import counted, one_line_errors, table_console
from shared.dataset import OPEN

import_app = typer.Typer(
    no_args_is_help=True, help="Convert your own data or a public data set to SQLEnv's format."
)
fetch_app = typer.Typer(no_args_is_help=True, help="Download a public data set and import it.")


@fetch_app.callback()
def _fetch() -> None:
    """Keep the name of the only command."""


Reader = Callable[..., Source]  # of the sources, the files of questions, and OUT
FILES = "SQLite files, or folders with some. They are only read."
Databases = Annotated[list[str], typer.Argument(help=FILES)]
Out = Annotated[
    Path | None, typer.Option(help="Data directory to write.", show_default="NAME-data")
]
Force = Annotated[
    bool, typer.Option("--force", help="Replace OUT even if that loses files or edits.")
]
Keep = Annotated[
    str,
    typer.Option(
        metavar="ties,empty,undecided",
        help="Keep questions that are dropped by default. ties: of equal sort keys, each member of "
        "the tie is right; empty: no rows or only NULL; undecided: numbers or dates are sorted as "
        "text, or NULLs come first.",
        show_default="none",
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option(
        help="Questions with their SQL: JSON, JSON lines or CSV; or a .txt file of lines without "
        "SQL, a question each (see docs/own-data.md)."
    ),
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
# an option of one source: its name in Python, on the command line, and what it does
SKIP = "skip_bad_rows", "--skip-bad-rows", "Go on if a CSV file loses over 3 % of its rows."
MEND = "mending", "--mend", "Mend names and cells as 'import csv' does, and report each change."


def _add_own(
    name: str, about: str, sources_are: str, reader: Reader, own: tuple[str, str, str] | None = None
) -> None:
    argument, flag, helped = own or ("", "--more", "")

    def command(
        sources: Annotated[list[str], typer.Argument(help=sources_are)],
        questions: Questions = None,
        eval_questions: EvalQuestions = None,
        out: Out = None,
        eval_share: EvalShare = Splitting.eval_share,
        seed: Seed = Splitting.seed,
        force: Force = False,
        keep: Keep = "",
        more: Annotated[bool, typer.Option(flag, help=helped)] = False,
    ) -> None:
        def read(target: Path) -> Source:
            asked = [path for path in (questions, eval_questions) if path]
            found = reader(sources, asked, target, **({argument: True} if more else {}))
            return add_questions(found, questions, eval_questions)

        _import(read, sources[0], out, force, keep, Splitting(eval_share, seed))

    if own is None:
        *parameters, _more = inspect.signature(command).parameters.values()
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    import_app.command(name, help=about)(command)


SQLITE = "Import your own SQLite databases with questions about them."
CSV = "Import CSV, Excel, JSON or Parquet files as one database, with questions if you have some."
POSTGRES = "Copy a PostgreSQL database, which is only read, with questions if you have some."
TABLES = "Folder of .csv, .xlsx, .ods, .json, .parquet or such files, or one such file."
_add_own("sqlite", SQLITE, FILES, read_sqlite, MEND)
_add_own("csv", CSV, TABLES, read_csv, SKIP)
_add_own("postgres", POSTGRES, "URL of a PostgreSQL database: postgresql://...", read_postgres)


@import_app.command("bird")
def import_bird_command(
    directory: Annotated[
        Path,
        typer.Argument(help="BIRD's folder: dev.json with dev_databases/, train's, or MINIDEV."),
    ],
    out: Out = None,
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
    keep: Keep = "",
) -> None:
    """Import BIRD or its Mini-Dev: like Spider, with its evidence in the questions."""
    shown = {"evidence": evidence, "descriptions": descriptions}
    _import(lambda _: read_bird(directory, **shown), directory, out, force, keep)


@import_app.command("spider")
def import_spider_command(
    directory: Annotated[
        Path,
        typer.Argument(help="Spider's folder, with database/, train_spider.json and dev.json."),
    ],
    out: Out = None,
    quoted: Annotated[
        int,
        typer.Option(
            min=0,
            help="Add copies of so many training databases whose names have spaces, hyphens or "
            "accents or are words of SQL, so that a model learns to quote names.",
        ),
    ] = 0,
    force: Force = False,
    keep: Keep = "",
) -> None:
    """Import Spider: execute every gold and keep the questions with one answer that fits."""
    _import(
        lambda _: add_quoted_copies(read_spider(directory), quoted), directory, out, force, keep
    )


@fetch_app.command("spider")
def fetch_spider_command(
    out: Annotated[Path, typer.Option(help="Data directory to write.")] = Path("spider-data"),
    url: Annotated[
        str, typer.Option(help="URL of the archive.", show_default="the official one")
    ] = SPIDER_URL,
    force: Force = False,
    keep: Keep = "",
) -> None:
    """Download the official Spider archive (CC BY-SA 4.0) and import it."""
    reasons = _reasons(keep)
    with one_line_errors():
        report = fetch_spider(out, url, force=force, keep=reasons)
    show_report(report, out)


def _import(
    read: Callable[[Path], Source],
    origin: Path | str,
    out: Path | None,
    force: bool,
    keep: str,
    splitting: Splitting | None = None,
) -> None:
    """Import what `read` finds to `out`, by default a directory named after `origin`."""
    reasons = _reasons(keep)
    with one_line_errors():
        target = out or named_after(origin)
        source = read(target)
        report = import_source(source, target, force=force, keep=reasons, splitting=splitting)
    show_report(report, target)


def _reasons(keep: str) -> frozenset[Reason]:
    names = [name.strip() for name in keep.split(",") if name.strip()]
    if unknown := sorted(set(names) - set(KEEP)):
        known = ", ".join(KEEP)
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {known}", param_hint="--keep")
    return frozenset().union(*(KEEP[name] for name in names))


def named_after(source: Path | str) -> Path:
    """Return the default of --out."""
    return Path(f"{name_of(source)}-data")


def show_report(report: ImportReport, out: Path) -> None:
    """Print what was kept and dropped, and what to do next."""
    report.show(table_console())
    if out.is_absolute() and out.is_relative_to(Path.cwd()):
        out = out.relative_to(Path.cwd())
    counts = f"{counted(report.kept, 'question')} on {counted(report.databases, 'database')}"
    typer.echo(f"wrote {counts} to {out}")
    if report.hard:
        levels, left_out = "easy,medium,hard", counted(report.hard, "hard question")
        typer.echo(f"By default, training and evaluation leave out {left_out}; to take all:")
        typer.echo(f"  train --set difficulty_filter={levels}, evaluate --difficulty {levels}")
    directory = shlex.quote(str(out))
    database = shlex.quote(str(next(out.glob("databases/*/*.sqlite"))))
    kept = {split for split, count in report.splits.items() if count.kept}
    if kept == {TRAIN, EVAL}:
        typer.echo(f"Train on it with: make train DATA={directory}")
    elif OPEN in kept:
        typer.echo("Learn from what several attempts at its questions agree on:")
        typer.echo(f"  python -m trainer improve --labels agreement --data {directory}")
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
