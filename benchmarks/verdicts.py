"""Compare our verdicts with the official Spider evaluator's, and list every pair that differs.

    python -m benchmarks.verdicts [--spider DIR] [--pairs FILE] [--json PATH]

DIR is a copy of Spider (default: SPIDER_DIR) with `database/<db_id>/<db_id>.sqlite`. FILE (default:
DIR/verdict_pairs.jsonl) has one pair per line: gold and predicted SQL, `pred_status` ("ok" if the
prediction ran) and `official_ex_keep_distinct`, the official verdict. Both statements run in the
SQL jail and are judged by each standard of `env_server.verifier.STANDARDS`; only pairs that the
official evaluator ran are compared. The standards accept the gold's own rows only; 'strict, ties'
is strict as in episodes, where equal sort keys allow other answers. It fails if Spider's standard
agrees on fewer than 99 % of the pairs, strict differs by more than column order, or 'strict, ties'
by more than that and ties.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console

from benchmarks.measuring import JsonPath, print_table
from env_server.sql import JobKind, SqlJob, SqlLimits
from env_server.sql.run import SqlRunner
from env_server.verifier import STANDARDS, Gold, column_order, result_verdicts
from shared.console import failure, percent, print_line, write_json
from shared.errors import first_problem

MAX_ROWS = 100_000  # of one result; the official evaluator has no limit
MAX_CELLS = 20_000_000  # of one search for an order of columns
LIMITS = SqlLimits(gold_rows=MAX_ROWS, max_result_bytes=500_000_000)
MIN_AGREEMENT = 0.99
COLUMN_ORDER, TIE = "column order", "a tie of the gold's"
STRICT_TIES = "strict, ties"
RULES = {name: standard.rule for name, standard in STANDARDS.items()} | {
    STRICT_TIES: "strict, with any row of an equal sort key"
}
# accepted reasons to differ from the official verdict
ALLOWED = {"strict": {COLUMN_ORDER}, STRICT_TIES: {COLUMN_ORDER, TIE}}


class Pair(BaseModel):
    """One line of the file of pairs."""

    dev_idx: int
    db_id: str
    gold: str
    pred: str
    pred_status: str
    official_ex_keep_distinct: bool


@dataclass(frozen=True)
class Disagreement:
    """A pair that one standard judges differently from the official evaluator."""

    standard: str
    dev_idx: int
    db_id: str
    ours: bool
    official: bool
    why: str
    gold: str
    pred: str


@dataclass
class Comparison:
    """Counts by standard: `agree` with the official verdict, and `right`, of the `compared` pairs.

    `ran_otherwise`: one line per pair that ran only here (not compared) or only there.
    """

    pairs: int = 0
    compared: int = 0
    agree: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    right: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    official_right: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)
    ran_otherwise: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Disagreements beyond the documented ones."""
        agree, problems = self.agree["spider"], []
        if agree < MIN_AGREEMENT * self.compared:
            problems = [
                f"spider agrees on {agree} of {self.compared}, under {percent(MIN_AGREEMENT, 0)}"
            ]
        return problems + [
            f"{pair.standard} differs on dev {pair.dev_idx} by {pair.why}"
            for pair in self.disagreements
            if pair.why not in ALLOWED.get(pair.standard, {pair.why})
        ]


def compare(spider: Path, pairs: Sequence[Pair]) -> Comparison:
    """Run and judge all pairs. Raises `ValueError` for a failing gold or a missing database."""
    comparison = Comparison(pairs=len(pairs))
    with SqlRunner(LIMITS) as runner:
        for pair in pairs:
            path = spider / "database" / pair.db_id / f"{pair.db_id}.sqlite"
            if not path.is_file():
                raise ValueError(f"no database at {path}: --spider must be a copy of Spider")
            judge(pair, str(path), runner, comparison)
    return comparison


def judge(pair: Pair, database: str, runner: SqlRunner, comparison: Comparison) -> None:
    """Run and judge one pair, and add it to the comparison."""
    gold_result, result = (
        runner.run(SqlJob(JobKind.QUERY, database, sql, MAX_ROWS)) for sql in (pair.gold, pair.pred)
    )
    where = f"dev {pair.dev_idx} ({pair.db_id})"
    if gold_result.error or gold_result.truncated:
        reason = gold_result.error or f"over {MAX_ROWS:,} rows"
        raise ValueError(f"the gold of {where} fails: {reason}: {pair.gold}")
    ran_there = pair.pred_status == "ok"
    if ran_there != (result.error is None):
        why = "runs only here" if result.error is None else f"does not run here ({result.error})"
        comparison.ran_otherwise.append(f"{where}: {why}: {pair.pred}")
    if not ran_there:
        return
    gold = Gold.of_rows(gold_result.rows, pair.gold, ties=False)
    tied = Gold.of_rows(gold_result.rows, pair.gold)
    if tied.ties is not None:
        tied = tied.with_ties(runner.run(SqlJob(JobKind.GOLD, database, tied.ties.sql)).rows)
    failed = result.error is not None or result.truncated
    verdicts = dict.fromkeys(RULES, False)
    if not failed:
        verdicts = result_verdicts(result.rows, gold)
        verdicts[STRICT_TIES] = STANDARDS["strict"].result(result.rows, tied)
    official = pair.official_ex_keep_distinct
    comparison.compared += 1
    comparison.official_right += official
    for name, verdict in verdicts.items():
        comparison.right[name] += verdict
        comparison.agree[name] += verdict == official
        if verdict != official:
            why = "it does not run here" if failed else difference(result.rows, gold, tied)
            about = (name, pair.dev_idx, pair.db_id, verdict, official, why, pair.gold, pair.pred)
            comparison.disagreements.append(Disagreement(*about))


def difference(rows: Sequence[tuple[Any, ...]], gold: Gold, tied: Gold) -> str:
    """Return how a result differs from the gold. `tied`: the gold with its ties."""
    strict = STANDARDS["strict"].result
    if strict(rows, gold):
        return "nothing that strict sees"
    if strict(rows, tied):
        return TIE
    for ordered in (True, False):
        order = column_order(rows, gold.rows, ordered, MAX_CELLS)
        if order and strict([tuple(row[place] for place in order) for row in rows], gold):
            return COLUMN_ORDER
    if Counter(rows) == Counter(gold.rows):
        return "row order"
    return "duplicate rows" if set(rows) == set(gold.rows) else "values"


def load_pairs(path: Path) -> list[Pair]:
    """Read the pairs. Raises `ValueError` naming the file, and the line that is not a pair."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        reason = f"{error.strerror}; pass the file with --pairs"
        raise ValueError(f"can't read the pairs {path}: {reason}") from error
    pairs = []
    for number, line in enumerate(lines, 1):
        try:
            pairs += [Pair.model_validate_json(line)] if line.strip() else []
        except ValidationError as error:
            problem = first_problem(error, "the line")
            raise ValueError(f"{path}:{number} is no pair: {problem}") from error
    return pairs


def show(comparison: Comparison, console: Console) -> None:
    compared = comparison.compared
    rows = []
    for name, rule in RULES.items():
        agree, right = comparison.agree[name], comparison.right[name]
        share = percent(agree / max(compared, 1))
        rows.append((f"{name}: {rule}", str(agree), str(compared), share, str(right)))
    title = f"Verdicts compared with the official evaluator's ({comparison.official_right} right)"
    print_table(title, ("standard", "agrees", "of", "%", "right"), rows)
    print_line(console, f"{comparison.pairs} pairs, {compared} ran there; every disagreement:")
    words = {True: "right", False: "wrong"}
    by_pair = attrgetter("dev_idx")
    for dev_idx, items in groupby(sorted(comparison.disagreements, key=by_pair), by_pair):
        first, *others = items
        names = "; ".join(f"{item.standard} ({item.why})" for item in (first, *others))
        verdicts = f"official {words[first.official]}; {words[first.ours]} by {names}"
        print_line(console, f"dev {dev_idx} ({first.db_id}): {verdicts}")
        print_line(console, f"    gold  {' '.join(first.gold.split())}")
        print_line(console, f"    pred  {' '.join(first.pred.split())}")
    for line in comparison.ran_otherwise:
        print_line(console, f"not compared: {line}")


def main(
    spider: Annotated[Path, typer.Option(help="A copy of Spider.", envvar="SPIDER_DIR")],
    pairs: Annotated[
        Path | None, typer.Option(help="The pairs.", show_default="SPIDER/verdict_pairs.jsonl")
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Judge pairs of gold and predicted SQL by every standard and compare with official verdicts.

    Exit code: 1 for differences beyond the documented ones, 2 for missing input.
    """
    try:
        comparison = compare(spider, load_pairs(pairs or spider / "verdict_pairs.jsonl"))
    except ValueError as error:
        raise failure(error, 2) from None
    console = Console()
    show(comparison, console)
    problems = comparison.problems
    write_json(json_path, asdict(comparison) | {"problems": problems}, 2)
    for problem in problems:
        typer.echo(f"unexpected: {problem}", err=True)
    agree = comparison.agree["spider"]
    verdict = f"FAILED: {len(problems)} unexpected differences" if problems else "passed"
    print_line(console, f"{verdict}: spider agrees on {agree} of {comparison.compared}")
    if problems:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
