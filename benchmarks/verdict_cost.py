"""Measure the CPU time of judging one ANSWER, for texts and golds chosen to make it long.

    python -m benchmarks.verdict_cost [--fuzz N] [--seed N] [--json PATH]

The server judges answers on its event loop, by all three standards at once, so a slow verdict
delays every other episode. A text has at most 20,000 bytes (`shared.actions`), a gold at most
1,000 rows. Each named text is judged against each gold; then `--fuzz` texts are made of pieces of
the golds, separators, brackets, quotes and numbers. Times are this thread's CPU seconds, the least
of three; a gold's first verdict also reads the gold, and is measured apart.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from benchmarks.measuring import JsonPath, print_table
from env_server.verifier import Gold, answer_verdicts
from shared.actions import MAX_ARGUMENT_BYTES
from shared.console import percent, print_line, write_json

SHOWN = 12  # rows of the table
PIECES = (
    *('"', "'", "`", "[", "]", "{", "}", "(", ")", "```", "**", "|", " | ", "\\|", "\\", "\n"),
    *("\n\n", "\n|---|\n", ",", ", ", ";", "; ", ": ", "\t", " and ", "- ", "1. ", "Answer: "),
    *("\\boxed{", "null", "None", "true", "1", "12.3", "1,234", "-", "\u2212", "e99", "%", " kg"),
    *("2021-03-01", "é", "e\u0301", "\u00a0", "x", "$", ".", '"a":', "00", "…", "ﷺ"),
)


@dataclass(frozen=True)
class Cost:
    """The CPU time of one verdict, in milliseconds."""

    gold: str
    text: str
    first_ms: float  # with the reading of the gold
    ms: float


def golds() -> dict[str, Gold]:
    """Return golds of 1 to 1,000 rows by name."""
    stream = random.Random(1)

    def table(rows: int, columns: int, cell: Callable[[int, int], Any], sql: str = "") -> Gold:
        cells = [[cell(row, column) for column in range(columns)] for row in range(rows)]
        return Gold.of(cells, "table", sql or "SELECT * FROM t", "How many singers?")

    def column(rows: int, cell: Callable[[int], Any], sql: str = "SELECT a FROM t") -> Gold:
        return Gold.of([cell(row) for row in range(rows)], "list", sql, "How many singers?")

    near = [12.25 + n / 11_000 for n in range(1_000)]
    return {
        "integer": Gold.of(42, "integer", "SELECT 1"),
        "float": Gold.of(0.5, "float", "SELECT 1"),
        "text": Gold.of("Ann", "string", "SELECT 1"),
        "long text": Gold.of("é" * 5_000, "string", "SELECT 1"),
        "20 names": column(20, lambda n: f"name {n}"),
        "1,000 integers": column(1_000, lambda n: n),
        "1,000 integers in order": column(1_000, lambda n: n, "SELECT a FROM t ORDER BY a"),
        "1,000 close floats": column(1_000, lambda n: near[n]),
        "190 close floats": column(190, lambda n: near[n * 5]),
        "1,000 dates": column(1_000, lambda n: f"20{n // 10 % 100:02d}-03-{n % 28 + 1:02d}"),
        "20 x 5": table(20, 5, lambda r, c: f"cell {r} {c}" if c % 2 else r * c / 7),
        "1,000 x 10 digits": table(1_000, 10, lambda r, c: stream.randrange(10)),
        "1,000 x 3 floats": table(1_000, 3, lambda r, c: near[(r * 7 + c) % 1_000]),
        "30 x 100 bits": table(30, 100, lambda r, c: stream.randrange(2)),
        "12 x 12 unit": table(12, 12, lambda r, c: int(r == c)),
        "60 x 60 unit": table(60, 60, lambda r, c: int(r == c)),
        "1 x 500": table(1, 500, lambda r, c: 1),
        "1,000 x 2 in order": table(1_000, 2, lambda r, c: r % 9, "SELECT a, b FROM t ORDER BY c"),
    }


def texts(gold: Gold) -> Iterator[tuple[str, str]]:
    """Yield named texts: the gold's own in several forms, nearly right ones, and hostile ones."""
    rows = [list(row) for row in gold.rows]
    flat = [cell for row in rows for cell in row]
    yield "JSON", json.dumps(rows)
    yield "JSON of columns turned", json.dumps([row[::-1] for row in rows])
    yield "Python", str([tuple(row) for row in rows])
    for name, cells, ends in (
        ("bars", " | ", "\n"), ("tabs", "\t", "\n"), ("CSV", ",", "\n"), ("commas", ", ", ", "),
        ("compact", ",", ","), ("semicolons", "; ", "; "),
    ):  # fmt: skip
        yield name, ends.join(cells.join(map(str, row)) for row in rows)
        yield (
            f"{name}, last cell wrong",
            ends.join(cells.join(map(str, row)) for row in [*rows[:-1], [*rows[-1][:-1], "wrong"]]),
        )
    yield (
        "rounded",
        "\n".join(
            " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row)
            for row in rows
        ),
    )
    yield "rounded, one wrong", "\n".join(["12.3"] * (len(rows) - 1) + ["12.4"])
    spelt = [f"{'+' * (n % 2)}{'0' * (n // 2 % 7)}{cell}" for n, cell in enumerate(flat)]
    yield "spelt otherwise", "\n".join(spelt)
    yield "spelt otherwise, wrapped", "Answer: Answer: Answer: " + "\n".join(spelt)
    width = len(rows[0])
    unit_rows: list[list[Any]] = [*rows[:-2], [0] * width, [1] * width]
    yield "ORed unit rows", "\n".join(" | ".join(map(str, row)) for row in unit_rows)
    yield "one value", "\n".join([str(flat[0])] * len(rows))
    yield "one value, 10,000 lines", "\n".join([str(flat[0])] * 10_000)
    for size in (len(rows), 10_000):
        yield f"{size} numbered lines", "\n".join(f"{n % 90}" for n in range(size))
    yield "12.3 in 4,000 lines", "\n".join(["12.3"] * 4_000)
    for piece in (
        "(", "['", "{'a':", "[\n", "'a',", '"', "|", "$", "1,", "True ", "**", "Answer: ", "\n",
        "é", "e\u0301", "\u00a0", "- ", "'\\", "()", "[],", "{},", "\\|", "; ", ": ", " and ", "\t",
        "ﷺ", "00", "1;", "1\t", "a: 1\n", "|---|\n", "\\boxed{", "[1],", "('a'),", "- 1\n", "\n1",
    ):  # fmt: skip
        yield repr(piece), piece * (MAX_ARGUMENT_BYTES // len(piece))
        yield f"[{piece!r}", "[" + piece * (MAX_ARGUMENT_BYTES // len(piece))
        yield f"Answer: {piece!r}", "Answer: **" + piece * (MAX_ARGUMENT_BYTES // len(piece)) + "**"


def fuzzed(gold: Gold, stream: random.Random) -> str:
    """Return a text of few different pieces, often repeated, some of them the gold's cells."""
    cells = [str(cell) for row in gold.rows for cell in row]
    pieces = stream.choices(PIECES, k=stream.randint(1, 4)) + stream.choices(cells, k=2)
    stream.shuffle(pieces)
    unit = "".join(stream.choices(pieces, k=stream.randint(1, 5)))
    count = stream.choice([len(gold.rows), len(cells), MAX_ARGUMENT_BYTES // max(len(unit), 1)])
    start, end = (
        stream.choice(["", "", "[", "```", "**", "Answer: ", '"', "(", "|"]) for _ in "ab"
    )
    return start + unit * count + end


def cpu_ms(judge: Callable[[], object]) -> float:
    began = time.thread_time()
    judge()
    return 1_000 * (time.thread_time() - began)


def measure(name: str, gold: Gold, label: str, text: str) -> Cost:
    text = text.encode()[:MAX_ARGUMENT_BYTES].decode(errors="ignore")
    anew = Gold.of(
        [list(row) for row in gold.rows] if gold.answer_type == "table"
        else [row[0] for row in gold.rows] if gold.answer_type == "list"
        else gold.rows[0][0],
        gold.answer_type, gold.sql, f"How many singers? {label} {name}",
    )  # fmt: skip
    first = cpu_ms(lambda: answer_verdicts(text, anew))
    times = (
        [first] if first < 2 else [cpu_ms(lambda: answer_verdicts(text, gold)) for _ in range(3)]
    )
    return Cost(name, label, round(first, 2), round(min(times), 2))


def main(
    fuzz: Annotated[int, typer.Option(min=0, help="Number of random texts for each gold.")] = 300,
    seed: Annotated[int, typer.Option(help="Random seed of those texts.")] = 0,
    json_path: JsonPath = None,
) -> None:
    """Print the slowest verdicts in milliseconds of CPU."""
    costs, stream = [], random.Random(seed)
    for name, gold in golds().items():
        for label, text in texts(gold):
            costs.append(measure(name, gold, label, text))
        for _ in range(fuzz):
            text = fuzzed(gold, stream)
            costs.append(measure(name, gold, f"fuzz {text[:24]!r}", text))
    costs.sort(key=lambda cost: -cost.ms)
    rows = [(c.gold, c.text, f"{c.ms:.1f}", f"{c.first_ms:.1f}") for c in costs[:SHOWN]]
    print_table("The slowest verdicts, ms of CPU", ("gold", "text", "ms", "first"), rows)
    share = sum(cost.ms > 5 for cost in costs) / len(costs)
    slowest = max(cost.first_ms for cost in costs)
    first = f"slowest first verdict {slowest:.1f} ms"
    print_line(Console(), f"{len(costs):,} verdicts; over 5 ms: {percent(share)}; {first}")
    write_json(json_path, [asdict(cost) for cost in costs], 2)


if __name__ == "__main__":
    typer.run(main)
