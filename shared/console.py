"""What the commands share on a terminal: lines, one-line errors, a progress bar, JSON reports."""

import io
import json
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from shared.errors import SQLEnvError
from shared.shipped import INSTALLED, NEEDS_UNIX

PACKAGES = ("sqlenv", "shared", "env_server", "trainer", "data")  # of this project
TABLE_WIDTH = 120  # a narrower table breaks its cells

for stream in (sys.stdout, sys.stderr):  # what a console can't show in its encoding is escaped
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="backslashreplace")
errors = Console(stderr=True)


def table_console() -> Console:
    """Return a console for stdout that is wide enough for tables."""
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    return console


def right_aligned(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def printable(text: str, also: str = "\n\t") -> str:
    """Return `text` with unprintable characters escaped (`\\x1b`), except those of `also`: a cell
    could control the terminal or reorder its text."""
    return "".join(
        char
        if char in also or char.isprintable() or unicodedata.category(char) == "Zs"
        else repr(char)[1:-1]
        for char in text
    )


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print one line literally: no markup, no highlighting, no line breaks, no control codes."""
    text = printable(line, also="\t")
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def literal(*cells: str) -> list[Text]:
    """Return the cells of a table's row, of which no text is read as markup or control codes."""
    return [Text(printable(cell)) for cell in cells]


def percent(share: object, digits: int = 1) -> str:
    """Format a share as a percentage, 0.7396 -> "74.0 %"; "-" for what is no number."""
    return f"{100 * share:.{digits}f} %" if isinstance(share, (int, float)) else "-"


def counted(number: int, of: str) -> str:
    """Format a count with its noun: "1 step", "2,000 steps"."""
    return f"{number:,} {of}" + ("" if number == 1 else "s")


def failure(message: object, status: int = 1) -> typer.Exit:
    """Print one error line to stderr and return the exception that ends the command."""
    text = printable(f"error: {message}")  # with the lines of a log
    errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    return typer.Exit(status)


@contextmanager
def packages_needed(extras: str) -> Iterator[None]:
    """Turn the lack of a package of these extras into one line that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = error.name or ""
        if name in sys.stdlib_module_names:  # that only some systems have
            failure(NEEDS_UNIX)
            raise SystemExit(1) from error
        # a fault of this project's own, or a module that an installed package lacks
        if name in (*PACKAGES, "") or "." in name:
            raise
        # the registry's package of this name, if there is one, is not this checkout
        source = "-e '." if (INSTALLED / "pyproject.toml").is_file() else "'sqlenv"
        failure(
            f"this command needs {name}, which is not installed: pip install {source}[{extras}]'"
        )
        raise SystemExit(1) from error


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error of this project or of the file system into one line and exit code 1."""
    try:
        yield
    except (SQLEnvError, OSError) as error:
        failure(error)
        raise SystemExit(1) from error


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function of (done, total if known) that moves a bar on stderr, if a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    disabled = not errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=disabled) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def write_json(path: Path | None, value: Any) -> None:
    """Write a report and create its folder; without a path do nothing. Ends the command if that
    fails."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise failure(f"can't write {path}: {error.strerror}") from error
