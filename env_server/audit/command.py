"""`python -m env_server verify` and `rescore`: recorded episodes played and scored again, without a
server or a GPU."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from env_server.rewards import REWARD_VERSION
from env_server.verifier import TRAINING_STANDARD
from shared.errors import SQLEnvError
from shared.models import MAX_STEP_BUDGET

SHOWN_PROBLEMS = 20
TABLE_WIDTH = 120  # narrower, a table breaks its cells

_console = Console()
_console.width = max(_console.width, TABLE_WIDTH)
_errors = Console(stderr=True)

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="The data directory that it was played on.", show_default="the run's own"
    ),
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Worker processes for SQL.")]
Out = Annotated[Path | None, typer.Option(help="Write the result there as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to a command line."""
    app.command("verify")(verify)
    app.command("rescore")(rescore)


def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/latest.")],
    data: Data = None,
    workers: Workers = 2,
    out: Out = None,
) -> None:
    """Play every recorded episode of a run again; all that its files say must follow, to the byte.

    Exits with 1, naming each line, where something does not. Needs the data that it was played on,
    and no GPU.
    """
    from env_server.audit.verify import verify_run

    with _told(), _bar("replaying") as bar:
        report = asyncio.run(verify_run(run, data_dir=data, workers=workers, progress=bar))
    table = Table(title=f"Replayed episodes of {run}", title_justify="left")
    for heading in ("phase", "mode", "episodes", "correct", "observations", "rewards"):
        table.add_column(heading, justify="left" if heading in ("phase", "mode") else "right")
    for row in report.as_json()["phases"]:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else cell for cell in row.values()))
    _console.print(table)
    for note in report.notes:
        _say(f"note: {note}")
    for problem in report.problems[:SHOWN_PROBLEMS]:
        _say(str(problem))
    if len(report.problems) > SHOWN_PROBLEMS:
        _say(f"... and {len(report.problems) - SHOWN_PROBLEMS:,} more")
    counts = f"{sum(report.episodes.values()):,} episodes, {report.metrics_rows:,} rows of metrics, {report.files:,} files"
    looked = f"{counts} in {report.wall_s:.1f} s"
    _say(
        f"passed: {looked}"
        if report.passed
        else f"FAILED: {len(report.problems):,} differences in {looked}"
    )
    _write(out, report.as_json())
    if not report.passed:
        raise typer.Exit(1)


def rescore(
    file: Annotated[Path, typer.Argument(help="A run's episodes.jsonl, or its folder.")],
    rewards: Annotated[
        str,
        typer.Option(help="Reward version to score by; 'sparse' pays for a right answer alone."),
    ] = REWARD_VERSION,
    standard: Annotated[
        str, typer.Option(help="Standard that an answer is compared by.")
    ] = TRAINING_STANDARD,
    data: Data = None,
    step_budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_STEP_BUDGET,
            help="Steps that an episode had.",
            show_default="the run's own",
        ),
    ] = None,
    workers: Workers = 2,
    out: Out = None,
) -> None:
    """Score recorded episodes by another reward version or standard, and say what changed."""
    from env_server.audit.rescore import Source
    from env_server.audit.rescore import rescore as score_again

    with _told(), _bar("scoring") as bar:
        source = Source.open(file, data, step_budget)
        found = asyncio.run(
            score_again(source, rewards=rewards, standard=standard, workers=workers, progress=bar)
        )
    table = Table(
        title=f"{source.path} by rewards {rewards}, standard {standard}", title_justify="left"
    )
    for heading in (
        "phase",
        "mode",
        "episodes",
        "correct",
        "gained",
        "lost",
        "mean reward",
        "rewards changed",
    ):
        table.add_column(heading, justify="left" if heading in ("phase", "mode") else "right")
    for (phase, mode), tally in found.tallies.items():
        old, new = tally.as_json()["mean_reward"]
        table.add_row(
            phase,
            mode,
            f"{tally.episodes:,}",
            f"{tally.old_correct:,} -> {tally.new_correct:,}",
            f"{tally.gained:,}",
            f"{tally.lost:,}",
            f"{old:.4f} -> {new:.4f}",
            f"{tally.rewards_changed:,}",
        )
    _console.print(table)
    flipped = [change for change in found.changes if change.flipped]
    for change in flipped[:SHOWN_PROBLEMS]:
        verdict = "right" if change.is_correct else "wrong"
        _say(
            f"line {change.line}: {change.question_id}: {change.last_action[:120]!r} is {verdict} by {standard}"
        )
    if len(flipped) > SHOWN_PROBLEMS:
        _say(f"... and {len(flipped) - SHOWN_PROBLEMS:,} more verdicts changed")
    if found.skipped:
        _say(f"note: {found.skipped:,} episodes were lost to infrastructure and have no reward")
    _write(out, found.as_json())


def _write(out: Path | None, value: dict[str, Any]) -> None:
    if out is not None:
        with _told():
            out.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _told() -> Iterator[None]:
    """An error of ours or of the file system is one line and exit status 1."""
    try:
        yield
    except (SQLEnvError, OSError) as error:
        _errors.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error


@contextmanager
def _bar(title: str) -> Iterator[Any]:
    """A progress bar on a terminal's stderr: call what it gives with (done, in all)."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=_errors, transient=True, disable=not _errors.is_terminal
    ) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _say(line: str) -> None:
    _console.print(line, markup=False, highlight=False, soft_wrap=True)
