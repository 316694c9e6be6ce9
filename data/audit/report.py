"""`audit`: every check over a data directory; `AuditReport`: its findings, as a table and as JSON."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data.audit.flags import FLAGS, Finding, Level
from data.audit.golds import question_findings
from data.audit.splits import parts, split_findings
from data.golds.execute import open_readonly
from shared.dataset import Question, data_digest, database_path, load_splits
from shared.errors import DatabaseLoadError

SHOWN = 40

Progress = Callable[[int, int], None]  # (questions done, in all)


@dataclass
class AuditReport:
    """What an audit found. `parts`: part -> how many questions; `wall_s` in seconds."""

    path: str
    digest: str
    parts: dict[str, int]
    databases: int
    findings: list[Finding] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.level is Level.ERROR]

    @property
    def clean(self) -> bool:
        """Whether there is no error."""
        return not self.errors

    def count(self, flag: str, split: str) -> int:
        return sum((finding.flag, finding.split) == (flag, split) for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "data_digest": self.digest,
            "clean": self.clean,
            "parts": self.parts,
            "databases": self.databases,
            "flags": dict(Counter(finding.flag for finding in self.findings).most_common()),
            "findings": [finding.as_json() for finding in self.findings],
            "wall_s": round(self.wall_s, 2),
        }

    def show(self, console: Console, *, everything: bool = False) -> None:
        """A row a flag, then the findings: errors first, `SHOWN` of them unless `everything`."""
        splits = list(dict.fromkeys(part.partition(",")[0] for part in self.parts))
        table = Table(title=f"Questions flagged in {self.path}", title_justify="left")
        for heading in ("flag", "level", *splits, "what it says"):
            table.add_column(heading, justify="right" if heading in splits else "left")
        for flag, (level, meaning) in FLAGS.items():
            counts = [self.count(flag, split) for split in splits]
            table.add_row(
                flag, level, *(f"{count:,}" if count else "-" for count in counts), meaning
            )
        console.print(table)
        ordered = sorted(
            self.findings,
            key=lambda finding: (finding.level is not Level.ERROR, finding.question_id),
        )
        for finding in ordered if everything else ordered[:SHOWN]:
            line = f"{finding.level}: {finding.flag}: {finding.question_id}: {finding.detail}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        if not everything and len(ordered) > SHOWN:
            console.print(
                f"... and {len(ordered) - SHOWN:,} more: --all shows them, --out keeps them as JSON"
            )


def audit(data_dir: Path, progress: Progress = lambda done, total: None) -> AuditReport:
    """Audit a data directory. `QuestionLoadError` where its questions can't be read; a database
    that can't be used is a finding on each of its questions."""
    began = time.monotonic()
    splits = load_splits(data_dir)
    every = [(split, question) for split, questions in splits.items() for question in questions]
    names = sorted({question.database_name for _, question in every})
    sizes = {part: len(members) for part, members in parts(splits).items()}
    report = AuditReport(str(data_dir), data_digest(data_dir), sizes, len(names))
    done = 0
    for name in names:
        members = [(split, question) for split, question in every if question.database_name == name]
        report.findings += _of_database(database_path(data_dir, name), members)
        done += len(members)
        progress(done, len(every))
    report.findings += split_findings(Path(data_dir), splits)
    report.wall_s = time.monotonic() - began
    return report


def _of_database(path: Path, members: Sequence[tuple[str, Question]]) -> list[Finding]:
    try:
        connection = open_readonly(path)
    except DatabaseLoadError as error:
        return [
            Finding("failing", split, question.question_id, question.database_name, error.message)
            for split, question in members
        ]
    try:
        return [
            finding
            for split, question in members
            for finding in question_findings(split, question, connection)
        ]
    finally:
        connection.close()
