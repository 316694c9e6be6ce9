"""Print the summary of a build as tables."""

from collections import Counter

from rich.table import Table

from data.build import Summary
from data.cli import output

DIFFICULTIES = ("easy", "medium", "hard")
MIN_WIDTH = 100  # columns; a narrower table breaks its cells


def show(summary: Summary) -> None:
    """Print a table of the databases and one of the answer types."""
    output.width = max(output.width, MIN_WIDTH)
    output.print(_databases(summary))
    output.print(_answers(summary))


def _databases(summary: Summary) -> Table:
    table = Table(title="Databases, and questions as easy/medium/hard")
    for heading in ("database", "group", "tables", "rows", "KB", "train", "eval"):
        table.add_column(heading, justify="left" if heading in ("database", "group") else "right")
    totals: Counter[tuple[str, str]] = Counter()
    for entry in summary.databases:
        totals += entry.questions
        table.add_row(
            entry.db_id,
            "unseen" if entry.unseen else "seen",
            str(len(entry.rows)),
            f"{sum(entry.rows.values()):,}",
            str(round(entry.size_bytes / 1000)),
            _counts(entry.questions, "train"),
            _counts(entry.questions, "eval"),
        )
    table.add_section()
    table.add_row(
        "all",
        "",
        str(sum(len(entry.rows) for entry in summary.databases)),
        f"{sum(sum(entry.rows.values()) for entry in summary.databases):,}",
        str(round(sum(entry.size_bytes for entry in summary.databases) / 1000)),
        _counts(totals, "train"),
        _counts(totals, "eval"),
    )
    return table


def _counts(questions: Counter[tuple[str, str]], split: str) -> str:
    counts = [questions[split, difficulty] for difficulty in DIFFICULTIES]
    return f"{sum(counts)} = {'/'.join(map(str, counts))}" if sum(counts) else "-"


def _answers(summary: Summary) -> Table:
    table = Table(title="Answer types")
    table.add_column("split")
    kinds = ("integer", "float", "string", "list", "table")
    for kind in kinds:
        table.add_column(kind, justify="right")
    for split, counts in summary.answer_types.items():
        table.add_row(split, *(str(counts[kind]) for kind in kinds))
    return table
