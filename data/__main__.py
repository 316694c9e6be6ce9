"""`python -m data`: build the shipped data, audit any, generate fresh data, import or fetch data of
others."""

from pathlib import Path
from typing import Annotated

import typer

from data.audit.command import audit_command
from data.generate import command as generate_command
from data.sources.command import fail, fetch_app, import_app
from shared.errors import SQLEnvError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Make, check and import data sets for SQLEnv."
)
app.command("audit")(audit_command)
app.command("generate")(generate_command)
app.add_typer(import_app, name="import")
app.add_typer(fetch_app, name="fetch")


@app.command("build")
def build_command(
    check: Annotated[
        bool, typer.Option("--check", help="Rebuild elsewhere and compare; write nothing.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The data directory; default: this package's own.")
    ] = None,
) -> None:
    """Build the shipped databases and questions from code."""
    from data import build  # here: it loads SQLite and sqlglot, which --help needs not
    from data.summary import show

    directory = build.DATA_DIR if out is None else out
    problems: list[str] = []
    try:
        if check:
            summary, problems = build.check(directory)
        else:
            summary = build.build(directory)
    except (SQLEnvError, OSError) as error:
        fail(error)
    show(summary)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        typer.echo(
            f"{len(problems)} files differ in {directory}: run 'python -m data build'", err=True
        )
        raise typer.Exit(1)
    typer.echo(f"{directory} is what the code builds" if check else f"written: {directory}")


if __name__ == "__main__":
    app()
