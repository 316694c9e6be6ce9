"""Do our verdicts agree with the official Spider evaluator's? Lists every pair on which they don't.

    python benchmarks/verdicts.py [--spider DIR] [--pairs FILE] [--json PATH]

DIR is a copy of Spider (default: SPIDER_DIR) with `database/<db_id>/<db_id>.sqlite`. FILE (default:
DIR/verdict_pairs.jsonl) has one pair a line: gold and predicted SQL, `pred_status` ("ok" where the
prediction ran) and `official_ex_keep_distinct`, the official verdict. Both statements are run in
the SQL jail and judged by each standard of `env_server.verifier.STANDARDS`; the pairs that the
official evaluator ran are compared. All take the gold's own rows for the only answer; 'strict,
ties' is strict as episodes have it, where equal sort keys leave other answers open.

Exit status 1 where Spider's standard agrees on fewer than 99 % of them, where strict differs by
more than column order, or 'strict, ties' by more than that and ties.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from env_server.sql import JobKind, SqlJob, SqlLimits, SqlRunner  # noqa: E402
from env_server.verifier import STANDARDS, Gold, column_order, result_verdicts  # noqa: E402

MAX_ROWS = 100_000  # of one result; the evaluator has no limit
MAX_CELLS = 20_000_000  # of one search for an order of columns: nobody waits for it here
POLICY = SqlLimits(gold_rows=MAX_ROWS, max_result_bytes=500_000_000)
LEAST_AGREEMENT = 0.99
COLUMN_ORDER, TIE = "column order", "a tie of the gold's"
STRICT_TIES = "strict, ties"
RULES = {name: standard.rule for name, standard in STANDARDS.items()} | {
    STRICT_TIES: "strict, where any row of an equal sort key will do"
}
# reasons to differ from the official verdict
ALLOWED = {"strict": {COLUMN_ORDER}, STRICT_TIES: {COLUMN_ORDER, TIE}}


class Pair(BaseModel):
    """One line of the pairs' file."""

    dev_idx: int
    db_id: str
    gold: str
    pred: str
    pred_status: str
    official_ex_keep_distinct: bool


@dataclass(frozen=True)
class Disagreement:
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
    """`agree`: standard -> pairs with the official verdict, of the `compared`; `right`: pairs that
    it calls right.

    `ran_otherwise`: a line for what ran only here or only there. The former is not compared.
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
        """What falls short of the bounds in this file's docstring."""
        found = []
        if self.agree["spider"] < LEAST_AGREEMENT * self.compared:
            found.append(
                f"spider agrees on {self.agree['spider']} of {self.compared}, under {LEAST_AGREEMENT:.0%}"
            )
        for one in self.disagreements:
            if one.why not in ALLOWED.get(one.standard, {one.why}):
                found.append(f"{one.standard} differs on dev {one.dev_idx} by {one.why}")
        return found


def compare(spider: Path, pairs: Sequence[Pair]) -> Comparison:
    """Run and judge every pair. `ValueError` naming a gold that fails or a database that is
    missing."""
    found = Comparison(pairs=len(pairs))
    with SqlRunner(POLICY) as runner:
        for pair in pairs:
            _compare(found, pair, spider, runner)
    return found


def _compare(found: Comparison, pair: Pair, spider: Path, runner: SqlRunner) -> None:
    path = spider / "database" / pair.db_id / f"{pair.db_id}.sqlite"
    if not path.is_file():
        raise ValueError(f"no database at {path}: --spider must be a copy of Spider")
    gold_result, result = (
        runner.run(SqlJob(JobKind.QUERY, str(path), sql, MAX_ROWS))
        for sql in (pair.gold, pair.pred)
    )
    where = f"dev {pair.dev_idx} ({pair.db_id})"
    if gold_result.error or gold_result.truncated:
        raise ValueError(
            f"the gold of {where} fails: {gold_result.error or f'over {MAX_ROWS:,} rows'}: {pair.gold}"
        )
    ran_there = pair.pred_status == "ok"
    if ran_there != (result.error is None):
        why = "runs here alone" if result.error is None else f"does not run here ({result.error})"
        found.ran_otherwise.append(f"{where}: {why}: {pair.pred}")
    if not ran_there:
        return
    gold = Gold.of_rows(gold_result.rows, pair.gold, ties=False)
    tied = Gold.of_rows(gold_result.rows, pair.gold)
    if tied.ties is not None:
        tied = tied.with_ties(runner.run(SqlJob(JobKind.GOLD, str(path), tied.ties.sql)).rows)
    failed = result.error is not None or result.truncated
    verdicts = dict.fromkeys(RULES, False)
    if not failed:
        verdicts = result_verdicts(result.rows, gold)
        verdicts[STRICT_TIES] = STANDARDS["strict"].result(result.rows, tied)
    found.compared += 1
    found.official_right += pair.official_ex_keep_distinct
    for name, verdict in verdicts.items():
        found.right[name] += verdict
        if verdict == pair.official_ex_keep_distinct:
            found.agree[name] += 1
            continue
        why = "it does not run here" if failed else difference(result.rows, gold, tied)
        official = pair.official_ex_keep_distinct
        found.disagreements.append(
            Disagreement(
                name, pair.dev_idx, pair.db_id, verdict, official, why, pair.gold, pair.pred
            )
        )


def difference(rows: Sequence[tuple[Any, ...]], gold: Gold, tied: Gold) -> str:
    """What a result and the gold differ in. `tied`: the gold with its ties."""
    strict = STANDARDS["strict"].result
    if strict(rows, gold):
        return "nothing that strict sees"
    if strict(rows, tied):
        return TIE
    for ordered in (True, False):
        order = column_order(rows, gold.rows, ordered, MAX_CELLS)
        if order is not None and strict(
            [tuple(row[place] for place in order) for row in rows], gold
        ):
            return COLUMN_ORDER
    if Counter(rows) == Counter(gold.rows):
        return "row order"
    return "duplicate rows" if set(rows) == set(gold.rows) else "values"


def load_pairs(path: Path) -> list[Pair]:
    """`ValueError` naming the file and the line that is no pair."""
    return list(_read_pairs(path))


def _read_pairs(path: Path) -> Iterator[Pair]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ValueError(
            f"can't read the pairs {path}: {error.strerror}; name them with --pairs"
        ) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield Pair.model_validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"])) or "the line"
                raise ValueError(f"{path}:{number} is no pair: {place}: {first['msg']}") from error


def show(found: Comparison, console: Console) -> None:
    table = Table(
        "standard", "rule", "agrees", "of", "%", "right",
        title=f"Verdicts on SQL results, against the official evaluator ({found.official_right} right)",
    )  # fmt: skip
    for name, rule in RULES.items():
        share = f"{found.agree[name] / max(found.compared, 1):.1%}"
        table.add_row(
            name, rule, str(found.agree[name]), str(found.compared), share, str(found.right[name])
        )
    console.print(table)

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    say(f"{found.pairs} pairs, of which {found.compared} ran there; every disagreement:")
    by_pair: dict[int, list[Disagreement]] = {}
    for one in found.disagreements:
        by_pair.setdefault(one.dev_idx, []).append(one)
    for dev_idx, several in sorted(by_pair.items()):
        first = several[0]
        ours, official = (
            "right" if verdict else "wrong" for verdict in (first.ours, first.official)
        )
        names = "; ".join(f"{one.standard} ({one.why})" for one in several)
        say(f"dev {dev_idx} ({first.db_id}): official {official}; {ours} by {names}")
        say(f"    gold  {' '.join(first.gold.split())}\n    pred  {' '.join(first.pred.split())}")
    for line in found.ran_otherwise:
        say(f"not compared: {line}")


def main(
    spider: Annotated[
        Path | None, typer.Option(help="A copy of Spider; default: SPIDER_DIR.")
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="The pairs; default: SPIDER/verdict_pairs.jsonl.")
    ] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Write the numbers and the list here.")
    ] = None,
) -> None:
    """Judge pairs of gold and predicted SQL by every standard and compare with the official
    evaluator's verdicts."""
    named = spider or (Path(os.environ["SPIDER_DIR"]) if os.environ.get("SPIDER_DIR") else None)
    try:
        if named is None:
            raise ValueError("no copy of Spider: name one with --spider DIR, or set SPIDER_DIR")
        found = compare(named, load_pairs(pairs or named / "verdict_pairs.jsonl"))
    except ValueError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    show(found, Console())
    if json_path is not None:
        report = asdict(found) | {"problems": found.problems}
        try:
            json_path.write_text(
                json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )
        except OSError as error:
            typer.echo(f"error: can't write {json_path}: {error.strerror}", err=True)
            raise typer.Exit(2) from None
    for problem in found.problems:
        typer.echo(f"falls short: {problem}", err=True)
    if found.problems:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
