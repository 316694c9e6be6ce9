"""`python -m data audit [DIR]`."""

from pathlib import Path
from typing import Annotated

import typer

from data.audit.report import audit
from shared.console import counted, failure, one_line_errors, table_console, write_json
from shared.dataset import data_directory


def audit_command(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Data directory, with databases/ and questions/.", show_default="the shipped data"
        ),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this JSON file.")
    ] = None,
) -> None:
    """Execute every gold and flag questions that cannot be trusted; exit with 1 on errors."""
    data_dir = Path(__file__).parents[1] if directory is None else data_directory(directory)
    if not (data_dir / "questions").is_dir():
        if (data_dir / "dev.json").is_file():
            name = "bird" if (data_dir / "dev_databases").is_dir() else "spider"
            remedy = f"run 'python -m data import {name}' first"
            raise failure(f"{data_dir} has {name.capitalize()}'s own layout: {remedy}")
        folder = data_dir / "questions"
        raise failure(f"no questions_<split>.json in {folder}: name a data directory")
    with one_line_errors():
        report = audit(data_dir)
    report.show(table_console())
    questions = ", ".join(f"{count:,} {split}" for split, count in report.questions.items())
    verdict = counted(len(report.errors), "error") if report.errors else "clean"
    notes = counted(len(report.findings) - len(report.errors), "note")
    size = f"{questions}; {counted(report.databases, 'database')}"
    typer.echo(f"{verdict}, {notes}: {size}, {report.wall_s:.1f} s")
    write_json(json_path, report.as_json())
    if report.errors:
        raise typer.Exit(1)
