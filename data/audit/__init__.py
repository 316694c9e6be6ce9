"""Can a data directory's questions be trusted? Executes every gold and looks for answers that can
be had without it.

    flags.py    every flag, its level and its meaning
    golds.py    one question: its gold run again, its answer guessed
    splits.py   questions side by side: duplicates, leaks between splits, constants
    report.py   `AuditReport`: the findings as a table and as JSON
    cli.py      `python -m data audit [DIR]`

`audit` is the whole of it. An error is a question that can't be trained or measured on as it
stands; a note is what a reader of a result should know.
"""

from data.audit.flags import FLAGS, Finding, Level
from data.audit.report import AuditReport, audit

__all__ = ["FLAGS", "AuditReport", "Finding", "Level", "audit"]
