"""What an import kept and dropped, and why: counted, shown as a table, written as JSON."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data.golds.execute import Reason
from shared.console import print_line, right_aligned
from shared.errors import DataError

REPORT_NAME = "import_report.json"  # its presence marks a directory as the output of an import
MAX_SHOWN_LINES = 20  # of problems, and of rows that could not be kept as asked


@dataclass(frozen=True)
class Flagged:
    """A row that was left out, or kept on request, and why."""

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
    kept_on_request: Counter[str] = field(default_factory=Counter)  # of the kept ones, by reason
    difficulty: Counter[str] = field(default_factory=Counter)  # of the kept ones
    answer_type: Counter[str] = field(default_factory=Counter)  # of the kept ones


@dataclass
class ImportReport:
    """The outcome of an import. Each of `problems` is one line on a file, a database or a row.

    `keep` are the reasons that were asked for with --keep-ties and --keep-empty.
    """

    source: str
    path: str
    keep: frozenset[Reason] = frozenset()
    splits: dict[str, SplitCount] = field(default_factory=dict)
    dropped: list[Flagged] = field(default_factory=list)
    kept_on_request: list[Flagged] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    databases: int = 0
    wall_s: float = 0.0

    def drop(self, item: Flagged) -> None:
        """Record a dropped row."""
        self.splits[item.split].dropped[item.reason] += 1
        self.dropped.append(item)

    def keep_flagged(self, item: Flagged) -> None:
        """Record a reason for which a row would have been dropped."""
        self.splits[item.split].kept_on_request[item.reason] += 1
        self.kept_on_request.append(item)

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
            "keep": sorted(self.keep),
            "databases": self.databases,
            "wall_s": round(self.wall_s, 2),
            "splits": splits,
            "problems": self.problems,
            "dropped": [vars(item) for item in self.dropped],
            "kept_on_request": [vars(item) for item in self.kept_on_request],
        }

    def write(self, directory: Path) -> None:
        """Write the report file."""
        text = json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n"
        # a broken row may contain half a surrogate pair: the escape is JSON's own
        (directory / REPORT_NAME).write_text(text, encoding="utf-8", errors="backslashreplace")

    def show(self, console: Console) -> None:
        """Print the rows by split and reason, the problems, and what could not be kept."""
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
        reasons = [reason for split in splits for reason in split.kept_on_request]
        for reason in dict.fromkeys(reasons):
            row(f"  on request: {reason}", [split.kept_on_request[reason] for split in splits])
        for difficulty in ("easy", "medium", "hard"):
            row(f"  {difficulty}", [split.difficulty[difficulty] for split in splits])
        for kind in ("integer", "float", "string", "list", "table"):
            row(f"  answer: {kind}", [split.answer_type[kind] for split in splits])
        console.print(table)
        lines = [f"problem: {problem}" for problem in self.problems]
        lines += [
            f"not kept: {item.question_id}: {item.reason}: {item.detail}"
            for item in self.dropped
            if item.reason in self.keep
        ]
        for line in lines[:MAX_SHOWN_LINES]:
            print_line(console, line)
        if (hidden := len(lines) - MAX_SHOWN_LINES) > 0:
            print_line(console, f"... and {hidden:,} more in {REPORT_NAME}")


def kept_reasons(directory: Path) -> frozenset[Reason]:
    """Return the reasons for which the import that wrote `directory`, if any, was to keep golds."""
    path = directory / REPORT_NAME
    try:
        return frozenset(map(Reason, json.loads(path.read_bytes()).get("keep", [])))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, AttributeError, TypeError) as error:
        problem = f"{path} is not an import's report: {error}"
        raise DataError(f"{problem}; import the data again, or remove the file") from error
