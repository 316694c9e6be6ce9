"""`python -m data`: build, audit, generate, make questions, import and fetch data sets."""

from pathlib import Path
from typing import Annotated

import typer

from data.audit import audit
from data.build import build
from data.choose import TRAIN, Splitting
from data.domains.shipped import DATA_DIR
from data.generate import generate_command
from data.introspection.make_questions import make_questions
from data.sources.import_command import (
    Databases,
    EvalShare,
    Force,
    Out,
    Seed,
    fetch_app,
    import_app,
    named_after,
    show_report,
)
from shared.console import counted, failure, one_line_errors, table_console, write_json
from shared.dataset import data_directory, load_splits

SHOWN = 3  # made questions that are printed, as a sample
HELP = "Build, audit, generate, import and fetch data sets."
app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)


@app.command("build")
def build_command(
    out: Annotated[
        Path | None, typer.Option(help="Data directory to write.", show_default="the shipped data")
    ] = None,
) -> None:
    """Make the questions about the shipped databases again, beside a copy of these."""
    if out is None and not (DATA_DIR.parent / "pyproject.toml").is_file():
        raise failure("the data of an installed package are not rebuilt: name a folder with --out")
    directory = out or DATA_DIR
    with one_line_errors():
        build(directory)
    typer.echo(f"wrote {directory}")


@app.command("audit")
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
    with one_line_errors():
        report = audit(DATA_DIR if directory is None else data_directory(directory))
    report.show(table_console())
    questions = ", ".join(f"{count:,} {split}" for split, count in report.questions.items())
    verdict = counted(len(report.errors), "error") if report.errors else "clean"
    notes = counted(len(report.findings) - len(report.errors), "note")
    typer.echo(f"{verdict}, {notes}: {questions}; {counted(report.databases, 'database')}")
    write_json(json_path, report.as_json())
    if report.errors:
        raise typer.Exit(1)


@app.command("questions")
def questions_command(
    databases: Databases,
    count: Annotated[int, typer.Option(min=1, help="Questions per database.")] = 300,
    out: Out = None,
    eval_share: EvalShare = Splitting.eval_share,
    seed: Seed = Splitting.seed,
    force: Force = False,
) -> None:
    """Make training and eval questions about your own databases, with gold SQL.

    The data directory can be trained on: make train DATA=OUT.
    """
    target = out or named_after(databases[0])
    paths, splitting = list(map(Path, databases)), Splitting(eval_share, seed)
    with one_line_errors():
        report = make_questions(paths, target, count, splitting, force=force)
    show_report(report, target)
    if questions := load_splits(target).get(TRAIN, [])[:SHOWN]:
        typer.echo("Some of its questions, with their answers:")
    for question in questions:
        typer.echo(f"  {question.question_text} {question.answer_text}")
    typer.echo(
        "Its eval questions are of the same templates: success on them says little about questions "
        "in people's own words. To measure that, import some with --eval-questions."
    )


app.command("generate")(generate_command)
app.add_typer(import_app, name="import")
app.add_typer(fetch_app, name="fetch")
