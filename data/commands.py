"""`python -m data`: build, audit, generate, make questions, import and fetch data sets."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from data.audit.command import audit_command
from data.build import DATA_DIR, build, compare
from data.generate import generate_command
from data.introspection.questions import make_questions
from data.sources.command import (
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
from data.sources.split import Splitting
from shared.console import counted, errors, failure, one_line_errors, print_line

HELP = "Build, audit, generate, import and fetch data sets."
app = typer.Typer(no_args_is_help=True, add_completion=False, help=HELP)


@app.command("build")
def build_command(
    check: Annotated[
        bool,
        typer.Option("--check", help="Rebuild in a temporary folder and compare; write nothing."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Data directory to write or check.", show_default="the shipped data"),
    ] = None,
) -> None:
    """Build the shipped databases and questions."""
    if out is None and not check and not (DATA_DIR.parent / "pyproject.toml").is_file():
        raise failure("the data of an installed package are not rebuilt: name a folder with --out")
    directory = DATA_DIR if out is None else out
    problems: list[str] = []
    with one_line_errors(), tempfile.TemporaryDirectory(prefix="sqlenv-build-") as scratch:
        built = Path(scratch) if check else directory
        build(built)
        if check:
            problems = compare(directory, built)
    for problem in problems:
        print_line(errors, problem, "yellow")
    if problems:
        files = counted(len(problems), "file")
        raise failure(f"differences in {files} of {directory}: run 'python -m data build'")
    typer.echo(f"{directory} is what the code builds" if check else f"wrote {directory}")


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


app.command("audit")(audit_command)
app.command("generate")(generate_command)
app.add_typer(import_app, name="import")
app.add_typer(fetch_app, name="fetch")
