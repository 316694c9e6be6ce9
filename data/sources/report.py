"""What an import kept and dropped, and why: counted, shown as a table, written as JSON."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data.golds.check_gold import Reason
from shared.console import counted, literal, print_line, right_aligned
from shared.dataset import IMPORT_REPORT
from shared.errors import DataError

MAX_SHOWN_LINES = 20  # of problems, notes and dropped questions
# what a user can do about a dropped question
REMEDIES: dict[str, str] = {
    Reason.FAILING: "correct the SQL: it must be exactly one SELECT in SQLite's dialect",
    Reason.EMPTY: "ask for what is there, or pass --keep empty",
    Reason.NULL: "ask for what is there, or pass --keep empty",
    Reason.TIED: "name more columns in ORDER BY, or pass --keep ties",
    Reason.ORDER: "let ORDER BY or GROUP BY name every column that decides the result",
    Reason.UNDECIDED: "write values as the columns hold them, exclude NULLs, or --keep undecided",
    Reason.OVERSIZE: "ask for a count or for fewer rows: an agent is shown 20, and 4,000 bytes",
    Reason.RUNAWAY: "simplify the SQL: an agent's queries have the same limit",
    Reason.UNPARSED: "write the same in more usual SQL",
    Reason.MENDED: "write it for the mended cells, and import the mended file with it",
    Reason.DIALECT: "write it in SQLite's SQL, for the tables as they are called in the copy",
    Reason.UNSTABLE: "select numbers and text, and no random or present-time values",
}


@dataclass(frozen=True)
class Flagged:
    """A row that was left out, or kept on request, and why."""

    question_id: str
    split: str
    database: str
    reason: str
    detail: str


@dataclass(frozen=True)
class ConvertedTable:
    """A table that was made from another format: its rows, and the type of each column."""

    name: str
    rows: int
    columns: dict[str, str]  # name -> SQLite's type


@dataclass
class SplitCount:
    """Rows of one split: read, kept and dropped."""

    rows: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    kept_on_request: Counter[str] = field(default_factory=Counter)  # of the kept ones, by reason


@dataclass
class ImportReport:
    """The outcome of an import: the content of its report file.

    keep        reasons for which golds are kept on request
    problems    one line each on a file, a database or a row that cannot be used
    notes       one line each on what is used, but perhaps not as its user expects
    translated  golds whose SQL was another dialect's
    hard        kept questions that training and evaluation leave out by default
    digest      of the other files of the data directory
    """

    source: str
    path: str
    keep: frozenset[Reason] = frozenset()
    splits: dict[str, SplitCount] = field(default_factory=dict)
    dropped: list[Flagged] = field(default_factory=list)
    kept_on_request: list[Flagged] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tables: list[ConvertedTable] = field(default_factory=list)
    translated: int = 0
    hard: int = 0
    databases: int = 0
    digest: str = ""

    def drop(self, item: Flagged) -> None:
        count = self.splits[item.split]
        count.rows += 1
        count.dropped[item.reason] += 1
        self.dropped.append(item)

    @property
    def kept(self) -> int:
        return sum(split.kept for split in self.splits.values())

    def write(self, directory: Path) -> None:
        def plain(value: Any) -> Any:
            return sorted(value) if isinstance(value, frozenset) else vars(value)

        # a broken row may contain half a surrogate pair: so all but ASCII is escaped
        text = json.dumps(vars(self), indent=1, default=plain)
        (directory / IMPORT_REPORT).write_text(text + "\n")

    def show(self, console: Console) -> None:
        """Print tables, rows by split and reason, problems, dropped questions, and what helps."""
        if self.tables:
            table = Table("table", *right_aligned("rows"), "columns", title="Tables")
            for one in self.tables:
                columns = ", ".join(f"{name} {kind}" for name, kind in one.columns.items())
                table.add_row(*literal(one.name, f"{one.rows:,}", columns))
            console.print(table)
        if self.splits:
            self._show_counts(console)
        lines = [f"problem: {problem}" for problem in self.problems]
        lines += [f"note: {note}" for note in self.notes]
        lines += [
            f"not kept: {row.question_id}: {row.reason}: {row.detail}" for row in self.dropped
        ]
        for line in lines[:MAX_SHOWN_LINES]:
            print_line(console, line)
        if (hidden := len(lines) - MAX_SHOWN_LINES) > 0:
            print_line(console, f"... and {hidden:,} more in {IMPORT_REPORT}")
        for reason in dict.fromkeys(item.reason for item in self.dropped):
            if reason in REMEDIES and reason not in self.keep:
                print_line(console, f"{reason}: {REMEDIES[reason]}")
        if self.translated:
            golds = counted(self.translated, "gold")
            compared = self.source == "postgres"
            how = "to SQLite" if compared else "to the new names"
            same = "; each answers as its own database does" * compared
            print_line(console, f"translated {how}: {golds}{same}")

    def _show_counts(self, console: Console) -> None:
        title = f"{self.source}: questions kept and dropped"
        table = Table("", *right_aligned(*self.splits), title=title, title_justify="left")
        splits = list(self.splits.values())

        def row(label: str, cells: list[int]) -> None:
            table.add_row(*literal(label, *(f"{cell:,}" if cell else "-" for cell in cells)))

        row("rows read", [split.rows for split in splits])
        for reason in dict.fromkeys(reason for split in splits for reason in split.dropped):
            row(f"dropped: {reason}", [split.dropped[reason] for split in splits])
        table.add_section()
        row("kept", [split.kept for split in splits])
        for reason in dict.fromkeys(reason for split in splits for reason in split.kept_on_request):
            row(f"  on request: {reason}", [split.kept_on_request[reason] for split in splits])
        console.print(table)


def kept_reasons(directory: Path) -> frozenset[Reason]:
    """Return the reasons for which the import that wrote `directory`, if any, was to keep golds."""
    path = directory / IMPORT_REPORT
    try:
        return frozenset(map(Reason, json.loads(path.read_bytes()).get("keep", [])))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, AttributeError, TypeError) as error:
        problem = f"{path} is not an import's report: {error}"
        raise DataError(f"{problem}; import the data again, or remove the file") from error
