"""Audit of a data directory: execute every gold, and flag questions that cannot be trusted.

An error is a question that cannot be trained or measured on; a note is what a reader of a result
should know.
"""

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from data.audit.findings import (
    ERRORS,
    NOTES,
    Finding,
    by_audience,
    question_findings,
    split_findings,
)
from data.golds.execute import open_readonly
from data.sources.report import kept_reasons
from shared.console import print_line, right_aligned
from shared.dataset import check_databases, data_digest, database_path, load_splits
from shared.errors import DatabaseLoadError

MAX_SHOWN = 40


@dataclass
class AuditReport:
    path: str
    digest: str
    questions: dict[str, int]  # split, with `seen` or `unseen` databases -> how many
    databases: int
    findings: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.flag in ERRORS]

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "data_digest": self.digest,
            "clean": not self.errors,
            "parts": self.questions,
            "databases": self.databases,
            "flags": dict(Counter(finding.flag for finding in self.findings).most_common()),
            "findings": [{"level": one.severity, **vars(one)} for one in self.findings],
        }

    def show(self, console: Console) -> None:
        """Print one row per flag that was raised, then the findings, errors first."""
        splits = list(dict.fromkeys(key.partition(",")[0] for key in self.questions))
        title, columns = f"Questions flagged in {self.path}", right_aligned(*splits)
        table = Table("flag", "severity", *columns, "meaning", title=title, title_justify="left")
        counts = Counter((finding.flag, finding.split) for finding in self.findings)
        checks = {**ERRORS, **NOTES}
        for flag, meaning in checks.items():
            numbers = [counts[flag, split] for split in splits]
            if any(numbers):
                severity = "error" if flag in ERRORS else "note"
                cells = [f"{number:,}" if number else "-" for number in numbers]
                table.add_row(flag, severity, *cells, meaning)
        if table.row_count:
            console.print(table)
        ordered = sorted(self.findings, key=lambda finding: (finding.severity, finding.question_id))
        for one in ordered[:MAX_SHOWN]:
            print_line(console, f"{one.severity}: {one.flag}: {one.question_id}: {one.detail}")
        if (hidden := len(ordered) - MAX_SHOWN) > 0:
            print_line(console, f"... and {hidden:,} more: use --json PATH")
        print_line(
            console, f"{len(checks) - table.row_count} of {len(checks)} checks found nothing"
        )


def audit(data_dir: Path) -> AuditReport:
    """Audit a data directory.

    A database that cannot be used is a finding on each of its questions. Golds that an import kept
    on request are noted. Raises `QuestionLoadError` if the questions cannot be read.
    """
    splits = load_splits(data_dir)
    tagged = [(split, question) for split, questions in splits.items() for question in questions]
    names = sorted({question.database_name for _, question in tagged})
    counts = {key: len(members) for key, members in by_audience(splits).items()}
    keep = kept_reasons(data_dir)
    report = AuditReport(str(data_dir), data_digest(data_dir), counts, len(names))
    for name in names:
        own = [(split, question) for split, question in tagged if question.database_name == name]
        try:
            check_databases(data_dir, [question for _, question in own])
            connection = open_readonly(database_path(data_dir, name))
        except DatabaseLoadError as error:
            report.findings += [Finding.on(one, "failing", split, str(error)) for split, one in own]
            continue
        with closing(connection):
            for split, question in own:
                report.findings += question_findings(split, question, connection, keep)
    report.findings += split_findings(data_dir, splits)
    return report
