"""How speed, waits, memory and start-up grow with episodes, rows, questions and steps.

    python -m benchmarks.growth [--part NAME] [--json PATH] [--figure PATH]

Parts, each on servers of its own: `latency` (steps/s and waits against episodes at the same time),
`runaway` (waits beside a query that never ends by itself), `rows` (of a table), `questions` (start
and memory), `open` (memory of open episodes), `steps` (memory over many steps). Without `--part`,
all run. Agents play through the public client, as fast as they get replies; `runaway`'s act every
0.1 s. With `--json`, parts that are not measured stay as the file has them, and the figure has all.
Rates and waits need a quiet machine. Linux only (reads /proc).
"""

import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.growth import measure
from benchmarks.growth.figure import draw
from benchmarks.measuring import DATA, DataDir, JsonPath, chosen, print_table
from shared.console import write_json

EPISODES = [1, 16, 64, 256, 1024, 4096]
ROWS = [100, 1_000, 10_000, 100_000, 1_000_000]
QUESTIONS = [1_000, 10_000, 100_000, 1_000_000]
BESIDE = 64  # episodes beside a runaway query
WAYS = ("key", "scan")  # by which a table is read
Report = dict[str, Any]


def tables(report: Report) -> None:
    """Print the parts of a report."""
    waits = {"steps/s": "steps_per_s", "median ms": "p50_ms", "p99 ms": "p99_ms"}
    if rows := report.get("latency"):
        _print("Steps against episodes at once", {"episodes": "episodes"} | waits, rows)
    if found := report.get("runaway"):
        title = f"{found['episodes']} episodes, without and with a runaway query elsewhere: p99 "
        title += f"{found['p99_more_ms']:+.1f} ms"
        _print(title, {"runaway query": "way"} | waits, [found["alone"], found["beside"]])
    if rows := report.get("rows"):
        flat = [{"rows": row["rows"], **{w: row[w]["steps_per_s"] for w in WAYS}} for row in rows]
        columns = {"rows": "rows", "by key": "key", "without an index": "scan"}
        _print("Steps/s against the rows of a table", columns, flat)
    if rows := report.get("questions"):
        columns = {"questions": "questions", "start, s": "start_s", "CPU-s": "cpu_s"}
        columns |= {"MiB": "mib", "highest MiB": "peak_mib"}
        _print("Start and memory against questions", columns, rows)
    if found := report.get("open"):
        columns = {"open": "open", "bytes each": "bytes_each", "its history": "history_bytes_each"}
        columns |= {"beyond": "beyond_history_bytes_each", "slowest batch, ms": "slowest_batch_ms"}
        _print("Memory of open episodes", columns, [found])
    if found := report.get("steps"):
        title = f"Memory over {found['steps']:,} steps: {found['bytes_per_step']:+.2f} bytes a step"
        _print(title, {"steps": "steps", "heap, MiB": "mib"}, found["memory"][::4])


def _print(title: str, columns: dict[str, str], rows: Sequence[Report]) -> None:
    """Print a table; `columns` are headings with the keys below them."""
    cells = [[_cell(row[key]) for key in columns.values()] for row in rows]
    print_table(title, [*columns], cells)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.{0 if value >= 100 else 1}f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main(
    part: Annotated[list[str] | None, typer.Option(help="Part to measure; repeatable.")] = None,
    data: DataDir = DATA,
    seconds: Annotated[float, typer.Option(help="Seconds to measure each rate.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Rounds without and with a runaway query.")] = 3,
    episodes: Annotated[list[int], typer.Option(help="At the same time; repeatable.")] = EPISODES,
    rows: Annotated[list[int], typer.Option(help="Rows of a table; repeatable.")] = ROWS,
    questions: Annotated[list[int], typer.Option(help="Questions; repeatable.")] = QUESTIONS,
    open_count: Annotated[int, typer.Option("--open", help="Open episodes.")] = 100_000,
    steps: Annotated[int, typer.Option(help="Steps over which memory must stay flat.")] = 300_000,
    json_path: JsonPath = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the curves as this PNG.")] = None,
) -> None:
    """Measure how a server's speed, waits, memory and start-up grow."""
    parts: dict[str, Callable[[], object]] = {
        "latency": lambda: measure.latency(data, episodes, seconds),
        "runaway": lambda: measure.beside_runaway(data, BESIDE, seconds, rounds),
        "rows": lambda: measure.rows(rows, seconds),
        "questions": lambda: measure.questions(questions),
        "open": lambda: measure.open_memory(data, open_count),
        "steps": lambda: measure.memory_over_steps(data, steps),
    }
    names = chosen(part, parts, "part")
    report: Report = {}
    if json_path is not None and json_path.exists():
        report = json.loads(json_path.read_text())
    report |= {"cpus": os.cpu_count(), "python": platform.python_version()}
    for name in names:
        report[name] = parts[name]()
        tables({name: report[name]})
        write_json(json_path, report)
    if figure is not None:
        draw(report, figure)


if __name__ == "__main__":
    typer.run(main)
