"""What an import kept and dropped, and why: counted, shown as a table, written as JSON."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shared.console import print_line, right_aligned

REPORT_NAME = "import_report.json"  # its presence marks a directory as the output of an import
MAX_SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class Dropped:
    """A row that was left out."""

    question_id: str
    split: str
    database: str
    reason: str
    detail: str


@dataclass
class SplitCount:
    """Rows of one split: read, kept and dropped."""

    rows: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    difficulty: Counter[str] = field(default_factory=Counter)  # of the kept ones
    answer_type: Counter[str] = field(default_factory=Counter)  # of the kept ones


@dataclass
class ImportReport:
    """The outcome of an import. Each of `problems` is one line on a file, a database or a row."""

    source: str
    path: str
    splits: dict[str, SplitCount] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    databases: int = 0
    wall_s: float = 0.0

    def drop(self, item: Dropped) -> None:
        """Record a dropped row."""
        self.splits[item.split].dropped[item.reason] += 1
        self.dropped.append(item)

    @property
    def kept(self) -> int:
        return sum(split.kept for split in self.splits.values())

    def to_json(self) -> dict[str, Any]:
        """Return the content of the report file."""
        splits = {
            name: {
                key: dict(value.most_common()) if isinstance(value, Counter) else value
                for key, value in vars(split).items()
            }
            for name, split in self.splits.items()
        }
        return {
            "source": self.source,
            "path": self.path,
            "databases": self.databases,
            "wall_s": round(self.wall_s, 2),
            "splits": splits,
            "problems": self.problems,
            "dropped": [vars(item) for item in self.dropped],
        }

    def write(self, directory: Path) -> None:
        """Write the report file."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n"
        # a broken row may contain half a surrogate pair: the escape is JSON's own
        (directory / REPORT_NAME).write_text(text, encoding="utf-8", errors="backslashreplace")

    def show(self, console: Console) -> None:
        """Print a table of the rows by split and reason, then the problems."""
        title = f"{self.source}: questions kept and dropped"
        table = Table("", *right_aligned(*self.splits), title=title, title_justify="left")
        splits = list(self.splits.values())

        def row(label: str, cells: list[int]) -> None:
            table.add_row(label, *(f"{cell:,}" if cell else "-" for cell in cells))

        row("rows read", [split.rows for split in splits])
        table.add_section()
        reasons = [reason for split in splits for reason, _ in split.dropped.most_common()]
        for reason in dict.fromkeys(reasons):
            row(f"dropped: {reason}", [split.dropped[reason] for split in splits])
        table.add_section()
        row("kept", [split.kept for split in splits])
        for difficulty in ("easy", "medium", "hard"):
            row(f"  {difficulty}", [split.difficulty[difficulty] for split in splits])
        for kind in ("integer", "float", "string", "list", "table"):
            row(f"  answer: {kind}", [split.answer_type[kind] for split in splits])
        console.print(table)
        for problem in self.problems[:MAX_SHOWN_PROBLEMS]:
            print_line(console, f"problem: {problem}")
        if (hidden := len(self.problems) - MAX_SHOWN_PROBLEMS) > 0:
            print_line(console, f"... and {hidden:,} more in {REPORT_NAME}")
