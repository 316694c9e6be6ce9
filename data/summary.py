"""Print what a build wrote as tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from data.choose import EVAL, TRAIN
from data.domains.shipped import SHIPPED, Shipped
from shared.console import right_aligned
from shared.dataset import database_path, load_splits
from shared.models import DIFFICULTIES, AnswerType

ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)


def show(console: Console, data_dir: Path) -> None:
    """Print a table of the shipped databases in `data_dir` and one of the answer types."""
    questions = load_splits(data_dir)

    def cells(entries: Sequence[Shipped]) -> list[str]:
        """Return the cells of the numbers, each summed over `entries`."""
        names = {entry.domain.db_id for entry in entries}
        rows = [table.rows for entry in entries for table in entry.domain.tables]
        size_kb = round(sum(database_path(data_dir, name).stat().st_size for name in names) / 1000)
        texts = [str(len(rows)), f"{sum(rows):,}", str(size_kb)]
        for split in (TRAIN, EVAL):
            own = [item.difficulty for item in questions[split] if item.database_name in names]
            counts = "/".join(str(own.count(level)) for level in DIFFICULTIES)
            texts.append(f"{len(own)} = {counts}" if own else "-")
        return texts

    numbers = right_aligned("tables", "rows", "KB", "train", "eval")
    title = "Databases, and questions as easy/medium/hard"
    table = Table("database", "group", *numbers, title=title)
    for entry in SHIPPED:
        group = "unseen" if entry.unseen else "seen"
        table.add_row(entry.domain.db_id, group, *cells([entry]))
    table.add_section()
    table.add_row("all", "", *cells(SHIPPED))
    console.print(table)
    table = Table("split", *right_aligned(*ANSWER_TYPES), title="Answer types")
    for split in (TRAIN, EVAL):
        kinds = [item.answer_type for item in questions[split]]
        table.add_row(split, *(str(kinds.count(kind)) for kind in ANSWER_TYPES))
    console.print(table)
