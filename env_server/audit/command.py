"""`python -m env_server verify` and `rescore`: replay recorded episodes without a server or GPU."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from env_server.rewards import REWARD_VERSION
from shared.console import (
    literal,
    one_line_errors,
    print_line,
    progress_bar,
    right_aligned,
    table_console,
)

_console = table_console()

DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The run's data directory.", show_default="the run's own"),
]


def verify(
    run: Annotated[Path, typer.Argument(help="A run's folder, such as runs/latest.")],
    data: DataOption = None,
) -> None:
    """Replay every episode of a run and compare its files, byte by byte.

    Needs the data that the run was played on, and no GPU. Exit code: 0 if everything agrees, 1 if a
    line differs (each is listed) or the run can't be read. Of an evaluation's folder, compares the
    episodes, and not evaluation.json.
    """
    from env_server.audit.verify import verify_run

    with one_line_errors(), progress_bar("replaying") as bar:
        audit = asyncio.run(verify_run(run, data_dir=data, progress=bar))
    table = _table(f"Replayed episodes of {run}", "episodes", "correct", "observations", "rewards")
    for (phase, mode), counts in audit.phases.items():
        table.add_row(*literal(phase, mode, *map(_cell, counts.values())))
    _console.print(table)
    for line in (*(f"note: {note}" for note in audit.notes), *audit.problems):
        print_line(_console, str(line))
    print_line(_console, f"judged by {audit.judged_by}")
    compared = (
        f"{audit.episodes:,} episodes, {audit.metrics_rows:,} rows of metrics, "
        f"{audit.files:,} files in {audit.wall_s:.1f} s"
    )
    print_line(
        _console,
        "not checked, as files can't show it: that the named model wrote the texts, with which "
        "weights, and what it cost",
    )
    verdict = "passed" if audit.passed else f"FAILED: {len(audit.problems):,} differences"
    print_line(_console, f"{verdict}: {compared}")
    if not audit.passed:
        raise typer.Exit(1)


def rescore(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
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
) -> None:
    """Score recorded episodes by another reward version or standard, and list what changes.

    Exit code: 0 if all episodes were scored, 1 if a file or an episode can't be read.
    """
    from env_server.audit.rescore import rescore as score_again
    from env_server.audit.rescore import tally

    with one_line_errors(), progress_bar("scoring") as bar:
        rescored = asyncio.run(
            score_again(run, data_dir=data, rewards=rewards, standard=standard, progress=bar)
        )
    columns = ("episodes", "correct", "gained", "lost", "mean_reward", "rewards_changed")
    table = _table(f"{run} by rewards {rewards}, standard {rescored.standard}", *columns)
    for phase_and_mode, scores in rescored.scores.items():
        found = tally(scores)
        table.add_row(*literal(*phase_and_mode, *(_cell(found[name]) for name in columns)))
    _console.print(table)
    for change in rescored.flipped:
        verdict = f"{'right' if change.is_correct else 'wrong'} by {rescored.standard}"
        action = f"{change.last_action[:120]!r} is {verdict}"
        print_line(_console, f"line {change.line}: {change.question_id}: {action}")
    if rescored.skipped:
        print_line(_console, f"note: {rescored.skipped:,} episodes lost to infrastructure")
    total = sum(map(len, rescored.scores.values()))
    print_line(_console, f"scored: {total:,} episodes, {len(rescored.flipped):,} verdicts changed")


def _table(title: str, *headings: str) -> Table:
    columns = right_aligned(*(heading.replace("_", " ") for heading in headings))
    return Table("phase", "mode", *columns, title=literal(title)[0], title_justify="left")


def _cell(value: float | list[float]) -> str:
    """Format a number, or a pair of them: before and after."""
    if isinstance(value, list):
        return " -> ".join(map(_cell, value))
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
