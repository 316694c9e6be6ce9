"""The tables that every command prints."""

from typing import Any

from rich.console import Console

from shared.run_stats import behaviour
from tests.trainer.conftest import record
from trainer.run.console import behaviour_table


def test_the_table_shows_before_and_after_side_by_side() -> None:
    flailing = behaviour([record(actions=["SAMPLE: orders"] * 2, outcome="budget", env_errors=1)])
    able = behaviour([record(actions=["DESCRIBE: orders", "QUERY: SELECT 1", "ANSWER: 1"])])
    results: dict[str, Any] = {
        "before": {mode: {"behaviour": {"overall": flailing}} for mode in ("greedy", "sampled")},
        "after": {mode: {"behaviour": {"overall": able}} for mode in ("greedy", "sampled")},
    }
    console = Console(width=80)
    with console.capture() as capture:
        console.print(behaviour_table("What changed in behaviour", results))
    lines = capture.get().splitlines()
    assert lines[0].strip() == "What changed in behaviour"
    rows = {
        " ".join(line.split()[:2]): line.split()[2:]
        for line in lines
        if line.startswith(("before", "after"))
    }
    assert list(rows) == ["before greedy", "before sampled", "after greedy", "after sampled"]
    assert rows["before greedy"] == ["0.0", "-", "0.0", "2.00", "1.00", "1.00"]
    assert rows["after sampled"] == ["100.0", "100.0", "100.0", "3.00", "0.00", "0.00"]
