"""Print the summary of a build as tables."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from data.build import DatabaseSummary, Summary
from shared.console import right_aligned

ANSWER_TYPES = ("integer", "float", "string", "list", "table")


def show(console: Console, summary: Summary) -> None:
    """Print a table of the databases and one of the answer types."""
    numbers = right_aligned("tables", "rows", "KB", "train", "eval")
    title = "Databases, and questions as easy/medium/hard"
    table = Table("database", "group", *numbers, title=title)
    for entry in summary.databases:
        table.add_row(entry.db_id, "unseen" if entry.unseen else "seen", *_sums([entry]))
    table.add_section()
    table.add_row("all", "", *_sums(summary.databases))
    console.print(table)
    table = Table("split", *right_aligned(*ANSWER_TYPES), title="Answer types")
    for split, counts in summary.answer_types.items():
        table.add_row(split, *(str(counts[kind]) for kind in ANSWER_TYPES))
    console.print(table)


def _sums(entries: Sequence[DatabaseSummary]) -> list[str]:
    """Return the cells of the numbers, each summed over `entries`."""
    rows = [count for entry in entries for count in entry.rows.values()]
    size_kb = round(sum(entry.size_bytes for entry in entries) / 1000)
    questions: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        questions += entry.questions
    cells = [str(len(rows)), f"{sum(rows):,}", str(size_kb)]
    for split in ("train", "eval"):
        counts = [questions[split, difficulty] for difficulty in ("easy", "medium", "hard")]
        cells.append(f"{sum(counts)} = {'/'.join(map(str, counts))}" if any(counts) else "-")
    return cells
