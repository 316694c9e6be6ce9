"""`python -m data audit [DIR]`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from data.audit.report import audit
from data.cli import fail, output, reporting_errors, say
from shared.dataset import data_directory

MIN_WIDTH = 120  # columns; a narrower table breaks its cells


def audit_command(
    directory: Annotated[
        Path | None,
        typer.Argument(
            help="Data directory, with databases/ and questions/.", show_default="the shipped data"
        ),
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Write the findings as JSON.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every finding.")] = False,
) -> None:
    """Execute every gold and flag questions that cannot be trusted; exit with 1 on errors."""
    data_dir = Path(__file__).parents[1] if directory is None else data_directory(directory)
    if not (data_dir / "questions").is_dir():
        if (data_dir / "dev.json").is_file():
            fail(f"{data_dir} has Spider's own layout: run 'python -m data import spider' first")
        fail(f"no questions_<split>.json in {data_dir / 'questions'}: name a data directory")
    with reporting_errors():
        report = audit(data_dir)
    output.width = max(output.width, MIN_WIDTH)
    report.show(output, everything=everything)
    questions = ", ".join(f"{count:,} {split}" for split, count in report.questions.items())
    verdict = "clean" if report.clean else f"{len(report.errors):,} errors"
    notes = len(report.findings) - len(report.errors)
    say(
        f"{verdict}, {notes:,} notes: {questions}; "
        f"{report.databases} databases, {report.wall_s:.1f} s"
    )
    if json_path is not None:
        with reporting_errors():
            json_path.write_text(
                json.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
            )
    if not report.clean:
        raise typer.Exit(1)
