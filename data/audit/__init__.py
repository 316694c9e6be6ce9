"""Audit of a data directory: execute every gold, and flag questions that cannot be trusted.

    flags.py    every flag, its severity and its meaning
    golds.py    one question: its gold executed again, its answer guessed
    splits.py   questions side by side: duplicates, leaks between splits, constants
    report.py   `AuditReport`: the findings as a table and as JSON
    command.py  `python -m data audit [DIR]`

An error is a question that cannot be trained or measured on; a note is what a reader of a result
should know.
"""

from data.audit.flags import FLAGS, Finding, Severity
from data.audit.report import AuditReport, audit

__all__ = ["FLAGS", "AuditReport", "Finding", "Severity", "audit"]
