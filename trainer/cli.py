"""What the commands share: where they print, options, and how a known error ends them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shared.errors import SQLEnvError

console = Console()
errors = Console(stderr=True)

DataOption = Annotated[
    Path,
    typer.Option(
        "--data", help="Data directory: databases/ and questions/ (see 'python -m data')."
    ),
]
ServerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        help="URL of a running environment server; may be repeated. Without it one is started.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any field of GRPOConfig; may be repeated."),
]


def settings_of(items: list[str] | None) -> dict[str, Any]:
    """What `--set` says, by key."""
    settings = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise typer.BadParameter(
                f"{item!r} is not KEY=VALUE, for example learning_rate=1e-4", param_hint="--set"
            )
        settings[key.strip()] = value
    return settings


def fail(error: SQLEnvError) -> typer.Exit:
    """Say what is wrong in one line, without a traceback."""
    errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def guarded(job: Callable[[], None]) -> None:
    """Run a command's work: known errors become one line and exit code 1, an interruption exit code
    130."""
    from trainer.runtime.interrupt import EXIT_CODE

    try:
        job()
    except SQLEnvError as error:
        raise fail(error) from error
    except KeyboardInterrupt:
        errors.print("interrupted", style="red")
        raise typer.Exit(EXIT_CODE) from None
