"""What the commands share: consoles, options, and how a known error ends a command."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shared.console import print_line
from shared.errors import SQLEnvError

console = Console()
errors = Console(stderr=True)

DATA = typer.Option(
    "--data", help="Data directory with databases/ and questions/ (see 'python -m data')."
)
DataOption = Annotated[Path, DATA]
ServerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        help="URL of a running environment server; repeatable. Without it, one is started.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set a field of GRPOConfig; repeatable."),
]


def settings_of(items: list[str] | None) -> dict[str, Any]:
    """Return the `--set` options by name."""
    settings = {}
    for item in items or []:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise typer.BadParameter(
                f"{item!r} is not NAME=VALUE, for example learning_rate=1e-4", param_hint="--set"
            )
        settings[name.strip()] = value
    return settings


def fail(error: SQLEnvError) -> typer.Exit:
    """Print an error in one line, without a traceback, and return the exit to raise."""
    print_line(errors, f"error: {error}", "red")
    return typer.Exit(1)


def guarded(job: Callable[[], None]) -> None:
    """Run a command's work.

    A known error becomes one line and exit code 1, an interruption exit code 130.
    """
    from trainer.runtime.interrupt import EXIT_CODE

    try:
        job()
    except SQLEnvError as error:
        raise fail(error) from error
    except KeyboardInterrupt:
        print_line(errors, "interrupted", "red")
        raise typer.Exit(EXIT_CODE) from None
