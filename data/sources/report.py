"""What an import kept and dropped, and why: counted, shown as a table, written as JSON."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

REPORT_NAME = "import_report.json"  # also marks a directory as an import's output
SHOWN_PROBLEMS = 20


@dataclass(frozen=True)
class Dropped:
    """One row that was left out."""

    question_id: str
    split: str
    database: str
    reason: str
    detail: str


@dataclass
class SplitCount:
    """Of one split: rows read, rows kept, and how the kept ones divide."""

    rows: int = 0
    kept: int = 0
    difficulty: Counter[str] = field(default_factory=Counter)
    answer_type: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass
class ImportReport:
    """`problems` are one line each and name a file, a database or a row; `wall_s` is in seconds."""

    source: str
    path: str
    splits: dict[str, SplitCount] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    databases: int = 0
    wall_s: float = 0.0

    def drop(self, item: Dropped) -> None:
        self.splits[item.split].dropped[item.reason] += 1
        self.dropped.append(item)

    @property
    def kept(self) -> int:
        return sum(split.kept for split in self.splits.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "path": self.path,
            "databases": self.databases,
            "wall_s": round(self.wall_s, 2),
            "splits": {
                name: {
                    "rows": split.rows,
                    "kept": split.kept,
                    "dropped": dict(split.dropped.most_common()),
                    "difficulty": dict(split.difficulty.most_common()),
                    "answer_type": dict(split.answer_type.most_common()),
                }
                for name, split in self.splits.items()
            },
            "problems": self.problems,
            "dropped": [vars(item) for item in self.dropped],
        }

    def write(self, directory: Path) -> None:
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1)
        # a broken row may name half a surrogate pair: the escape is JSON's own
        (directory / REPORT_NAME).write_text(
            text + "\n", encoding="utf-8", errors="backslashreplace"
        )

    def show(self, console: Console) -> None:
        """Prints the table of rows by split and reason, then the problems."""
        names = list(self.splits)
        table = Table(title=f"{self.source}: questions kept and dropped", title_justify="left")
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right")

        def row(label: str, cells: list[int]) -> None:
            table.add_row(label, *(f"{cell:,}" if cell else "-" for cell in cells))

        splits = [self.splits[name] for name in names]
        row("rows read", [split.rows for split in splits])
        table.add_section()
        for reason in dict.fromkeys(
            reason for split in splits for reason, _n in split.dropped.most_common()
        ):
            row(f"dropped: {reason}", [split.dropped[reason] for split in splits])
        table.add_section()
        row("kept", [split.kept for split in splits])
        for level in ("easy", "medium", "hard"):
            row(f"  {level}", [split.difficulty[level] for split in splits])
        for kind in ("integer", "float", "string", "list", "table"):
            row(f"  answer: {kind}", [split.answer_type[kind] for split in splits])
        console.print(table)
        for problem in self.problems[:SHOWN_PROBLEMS]:
            console.print(f"problem: {problem}", markup=False, highlight=False, soft_wrap=True)
        if len(self.problems) > SHOWN_PROBLEMS:
            console.print(f"... and {len(self.problems) - SHOWN_PROBLEMS:,} more in {REPORT_NAME}")
