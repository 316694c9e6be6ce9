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
from shared.models import MAX_STEP_BUDGET

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
    for row in audit.phases.values():
        counts = (row.episodes, row.correct, row.observations, row.rewards)
        table.add_row(row.phase, row.mode, *(f"{count:,}" for count in counts))
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
    file: Annotated[Path, typer.Argument(help="A run's episodes.jsonl, or its folder.")],
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
    step_budget: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_STEP_BUDGET, help="The episodes' budget.", show_default="the run's own"
        ),
    ] = None,
    workers: WorkersOption = 2,
    report: ReportOption = None,
) -> None:
    """Score recorded episodes by another reward version or standard, and list what changes.

    Exit code: 0 if all episodes were scored, 1 if a file or an episode can't be read.
    """
    from env_server.audit.rescore import Source
    from env_server.audit.rescore import rescore as score_again

    with one_line_errors(), progress_bar("scoring") as bar:
        source = Source.open(file, data, step_budget)
        job = score_again(source, rewards=rewards, standard=standard, workers=workers, progress=bar)
        rescored = asyncio.run(job)
    title = f"{source.path} by rewards {rewards}, standard {rescored.standard}"
    columns = ("episodes", "correct", "gained", "lost", "mean reward", "rewards changed")
    table = _table(title, *columns)
    for (phase, mode), tally in rescored.tallies.items():
        old, new = (total / tally.episodes for total in tally.rewards)
        correct = " -> ".join(f"{count:,}" for count in tally.correct)
        counts = (tally.episodes, tally.gained, tally.lost, tally.rewards_changed)
        episodes, gained, lost, changed = (f"{count:,}" for count in counts)
        mean = f"{old:.4f} -> {new:.4f}"
        table.add_row(phase, mode, episodes, correct, gained, lost, mean, changed)
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
    total = sum(tally.episodes for tally in rescored.tallies.values())
    print_line(_console, f"scored: {total:,} episodes, {len(flipped):,} verdicts changed")
    write_json(report, rescored.as_json())


def _table(title: str, *headings: str) -> Table:
    return Table("phase", "mode", *right_aligned(*headings), title=title, title_justify="left")


def _print_first(lines: Sequence[str]) -> None:
    for line in lines[:MAX_LINES]:
        print_line(_console, line)
    if len(lines) > MAX_LINES:
        print_line(_console, f"... and {len(lines) - MAX_LINES:,} more")
