"""What the commands of `python -m data` share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console

from shared.errors import SQLEnvError

output = Console()
errors = Console(stderr=True)


def say(line: str) -> None:
    """Print one line to stdout without wrapping or markup."""
    output.print(line, markup=False, highlight=False, soft_wrap=True)


def warn(line: str, style: str = "yellow") -> None:
    """Print one line to stderr."""
    errors.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def fail(error: Exception | str) -> NoReturn:
    """Print an error and exit with status 1."""
    warn(f"error: {error}", "red")
    raise typer.Exit(1)


@contextmanager
def reporting_errors() -> Iterator[None]:
    """Turn an SQLEnv error or an error of the file system into one line and exit status 1."""
    try:
        yield
    except (SQLEnvError, OSError) as error:
        fail(error)
