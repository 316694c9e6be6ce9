"""`python -m data audit [DIR]`."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from data.sources.command import fail
from shared.errors import SQLEnvError

WIDTH = 120  # narrower, the table breaks its cells


def audit_command(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="A data directory, with databases/ and questions/.", show_default="the shipped"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the findings there as JSON.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every finding.")] = False,
) -> None:
    """Execute every gold and flag the questions that can't be trusted. Exits with 1 where there is
    an error."""
    from data.audit import audit  # here: it loads SQLite and sqlglot, which --help needs not

    place = Path(__file__).parents[1] if directory is None else directory
    console = Console()
    console.width = max(console.width, WIDTH)
    try:
        if not (place / "questions").is_dir() and (place / "dev.json").is_file():
            raise SQLEnvError(
                f"{place} is in Spider's own layout: import it first, 'python -m data import spider'"
            )
        if not (place / "questions").is_dir():
            raise SQLEnvError(
                f"no questions_<split>.json in {place / 'questions'}: name a data directory"
            )
        report = audit(place)
    except (SQLEnvError, OSError) as error:
        fail(error)
    report.show(console, everything=everything)
    questions = ", ".join(f"{count:,} {part}" for part, count in report.parts.items())
    verdict = "clean" if report.clean else f"{len(report.errors):,} errors"
    notes = len(report.findings) - len(report.errors)
    console.print(
        f"{verdict}, {notes:,} notes: {questions}; {report.databases} databases, {report.wall_s:.1f} s",
        highlight=False,
    )
    if out is not None:
        try:
            out.write_text(
                json.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )
        except OSError as error:
            fail(error)
    if not report.clean:
        raise typer.Exit(1)
