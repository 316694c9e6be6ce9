"""Run every statement on one worker and print the most expensive."""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import apsw
import typer

from benchmarks.measuring import JsonPath, chosen, print_table
from benchmarks.sql_functions.cases import (
    TABLE,
    WORK,
    Case,
    after_work,
    aggregates,
    calls,
    in_a_row,
    statements,
)
from env_server.sql import JobKind, SqlJob
from env_server.sql.limits import EXPENSIVE_FUNCTIONS
from env_server.sql.pool import SqlPool
from shared.console import print_line, table_console, write_json
from shared.seeds import MAX_SEED

KINDS = ("calls", "rows", "statements")
SHOWN = 12  # of each kind


@dataclass(frozen=True)
class Cost:
    """What a case took. CPU seconds of the worker; of a killed one, of its first life."""

    case: Case
    cpu_s: float
    vm_steps: int
    outcome: str  # "ok" or the error code

    @property
    def us_each(self) -> float:
        return self.cpu_s / self.case.count * 1e6

    @property
    def ns_per_byte(self) -> float:
        return self.cpu_s / self.case.count / max(self.case.bytes, 1) * 1e9


class Meter:
    """Runs statements on a pool of one worker and reads the CPU clock of the worker."""

    def __init__(self, pool: SqlPool, database: Path) -> None:
        self.pool, self.database = pool, str(database)

    async def cost(self, case: Case) -> Cost:
        [pid] = self.pool.pids
        clock = ~pid << 3 | 2  # Linux: the CPU clock of another process
        began = time.clock_gettime(clock)
        result = await self.pool.run(SqlJob(JobKind.QUERY, self.database, case.sql, 1))
        outcome = result.error_code or "ok"
        if outcome == "sql_killed":
            return Cost(case, self.pool.limits.kill_after_cpu_s, result.vm_steps, outcome)
        return Cost(case, time.clock_gettime(clock) - began, result.vm_steps, outcome)


async def measure(kinds: Sequence[str], seed: int, tries: int) -> list[Cost]:
    """Return the costs of all statements of `kinds`."""
    rng, costs = random.Random(seed), list[Cost]()
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "t.sqlite"
        with closing(apsw.Connection(str(database))) as connection:
            connection.execute(TABLE).close()
        async with SqlPool(1) as pool:
            meter = Meter(pool, database)
            if "calls" in kinds:
                single = [await meter.cost(case) for case in calls(rng, tries)]
                costs += single
                costs += [await meter.cost(case) for case in in_a_row(worst_calls(single))]
            if "rows" in kinds:
                costs += [await meter.cost(case) for case in aggregates(rng, tries)]
            if "statements" in kinds:
                costs += [await meter.cost(case) for case in statements()]
            work = await meter.cost(Case("calls", "work", WORK.format(rows=40), 40))
            rows = int(0.9 * pool.limits.max_cpu_s * 1e6 / work.us_each)
            longest = sorted((cost for cost in costs if cost.outcome == "ok"), key=by_cpu)[-5:]
            costs += [await meter.cost(after_work(cost.case, rows)) for cost in longest]
    return costs


def by_cpu(cost: Cost) -> float:
    return cost.cpu_s


def worst_calls(costs: Iterable[Cost]) -> list[Case]:
    """Return the most expensive call of each function, for the most expensive functions.

    Those whose calls are counted are apart: a statement may hold few of them.
    """
    worst: dict[str, Cost] = {}
    for cost in sorted(costs, key=by_cpu):
        if cost.outcome == "ok":
            worst[cost.case.name.partition("(")[0]] = cost
    counted = [cost for name, cost in worst.items() if name in EXPENSIVE_FUNCTIONS]
    plain = [cost for name, cost in worst.items() if name not in EXPENSIVE_FUNCTIONS]
    worst_of_each = [*sorted(counted, key=by_cpu)[-4:], *sorted(plain, key=by_cpu)[-8:]]
    return [cost.case for cost in worst_of_each]


def show(costs: Sequence[Cost]) -> None:
    """Print the worst of each kind."""
    for kind in KINDS:
        found = sorted((cost for cost in costs if cost.case.kind == kind), key=by_cpu)
        rows = [
            (
                cost.case.name if len(cost.case.name) < 90 else cost.case.name[:89] + "…",
                f"{cost.cpu_s:.2f}",
                f"{cost.us_each:,.1f}",
                f"{cost.ns_per_byte:.2f}" if cost.case.bytes else "",
                f"{cost.vm_steps:,}",
                cost.outcome,
            )
            for cost in reversed(found[-SHOWN:])
        ]
        if rows:
            headings = (kind, "CPU-s", "us each", "ns per byte", "steps", "outcome")
            print_table(f"The worst of {len(found):,} statements", headings, rows)


def main(
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Random seed.")] = 7,
    tries: Annotated[int, typer.Option(min=1, help="Statements per function.")] = 8,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Kind to run: {', '.join(KINDS)}; repeatable.", show_default="all"),
    ] = None,
    most_s: Annotated[float, typer.Option(help="CPU seconds that no statement may exceed.")] = 4.0,
    json_path: JsonPath = None,
) -> None:
    """Measure every statement on one worker and print the worst.

    Exit code: 1 if one took over `--most-s` or killed its worker.
    """
    costs = asyncio.run(measure(chosen(only, KINDS, "kind"), seed, tries))
    show(costs)
    escaped = [cost for cost in costs if cost.cpu_s > most_s or cost.outcome == "sql_killed"]
    for cost in escaped:
        print_line(table_console(), f"escaped: {cost.cpu_s:.2f} s: {cost.case.sql}")
    verdict = "FAILED" if escaped else "passed"
    print_line(table_console(), f"{verdict}: {len(escaped)} of {len(costs):,} statements escaped")
    write_json(json_path, [asdict(cost) for cost in sorted(costs, key=by_cpu, reverse=True)])
    if escaped:
        raise typer.Exit(1)


app = typer.Typer(add_completion=False)
app.command()(main)

if __name__ == "__main__":
    app()
