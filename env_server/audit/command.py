"""`python -m env_server verify` and `rescore`: replay recorded episodes without a server or GPU."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from env_server.rewards import REWARD_VERSION
from shared.console import (
    one_line_errors,
    print_line,
    progress_bar,
    right_aligned,
    table_console,
    write_json,
)

MAX_LINES = 20  # of problems or changes; the JSON report has all

_console = table_console()

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The run's data directory.", show_default="the run's own"),
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, max=64, help="SQL processes.")]
ReportOption = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this JSON file.")
]


def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/latest.")],
    data: DataOption = None,
    workers: WorkersOption = 2,
    report: ReportOption = None,
) -> None:
    """Replay every episode of a run and compare its files, byte by byte.

    Needs the data that the run was played on, and no GPU. Exit code: 0 if everything agrees, 1 if a
    line differs (each is listed) or the run can't be read. Of an evaluation's folder, compares the
    episodes, and not evaluation.json.
    """
    from env_server.audit.verify import verify_run

    with one_line_errors(), progress_bar("replaying") as bar:
        audit = asyncio.run(verify_run(run, data_dir=data, workers=workers, progress=bar))
    table = _table(f"Replayed episodes of {run}", "episodes", "correct", "observations", "rewards")
    for (phase, mode), counts in audit.phases.items():
        table.add_row(phase, mode, *(f"{count:,}" for count in counts.values()))
    _console.print(table)
    for note in audit.notes:
        print_line(_console, f"note: {note}")
    _print_first([str(problem) for problem in audit.problems])
    compared = (
        f"{audit.episodes:,} episodes, {audit.metrics_rows:,} rows of metrics, "
        f"{audit.files:,} files in {audit.wall_s:.1f} s"
    )
    verdict = "passed" if audit.passed else f"FAILED: {len(audit.problems):,} differences"
    print_line(_console, f"{verdict}: {compared}")
    write_json(report, audit.as_json())
    if not audit.passed:
        raise typer.Exit(1)


def rescore(
    run: Annotated[Path, typer.Argument(help="A run's folder, or its episodes.jsonl.")],
    rewards: Annotated[
        str, typer.Option(help="Reward version to score by; 'sparse' only pays for right answers.")
    ] = REWARD_VERSION,
    standard: Annotated[
        str | None,
        typer.Option(
            help="Standard by which answers are judged: strict, spider or bird.",
            show_default="the run's own",
        ),
    ] = None,
    data: DataOption = None,
    workers: WorkersOption = 2,
    report: ReportOption = None,
) -> None:
    """Score recorded episodes by another reward version or standard, and list what changes.

    Exit code: 0 if all episodes were scored, 1 if a file or an episode can't be read.
    """
    from env_server.audit.rescore import rescore as score_again

    with one_line_errors(), progress_bar("scoring") as bar:
        rescored = asyncio.run(
            score_again(
                run,
                data_dir=data,
                rewards=rewards,
                standard=standard,
                workers=workers,
                progress=bar,
            )
        )
    title = f"{rescored.file} by rewards {rewards}, standard {rescored.standard}"
    columns = ("episodes", "correct", "gained", "lost", "mean reward", "rewards changed")
    table, found = _table(title, *columns), rescored.as_json()
    for row in found["phases"]:
        correct = " -> ".join(f"{count:,}" for count in row["correct"])
        mean = " -> ".join(f"{reward:.4f}" for reward in row["mean_reward"])
        episodes, *counts = (
            f"{row[name]:,}" for name in ("episodes", "gained", "lost", "rewards_changed")
        )
        table.add_row(row["phase"], row["mode"], episodes, correct, *counts[:2], mean, counts[2])
    _console.print(table)
    flipped = [change for change in rescored.changes if change.flipped]
    _print_first(
        [
            f"line {change.line}: {change.question_id}: {change.last_action[:120]!r} is "
            f"{'right' if change.is_correct else 'wrong'} by {rescored.standard}"
            for change in flipped
        ]
    )
    if rescored.skipped:
        print_line(_console, f"note: {rescored.skipped:,} episodes lost to infrastructure")
    total = sum(map(len, rescored.scores.values()))
    print_line(_console, f"scored: {total:,} episodes, {len(flipped):,} verdicts changed")
    write_json(report, found)


def _table(title: str, *headings: str) -> Table:
    return Table("phase", "mode", *right_aligned(*headings), title=title, title_justify="left")


def _print_first(lines: Sequence[str]) -> None:
    for line in lines[:MAX_LINES]:
        print_line(_console, line)
    if len(lines) > MAX_LINES:
        print_line(_console, f"... and {len(lines) - MAX_LINES:,} more")
