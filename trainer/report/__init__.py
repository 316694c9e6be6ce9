"""A run as one self-contained HTML page.

`source` reads the folder; `curves`, `ledger`, `groups` and `pairs` work out what is shown; `charts` and `shown` make markup
of numbers, actions and observations; `page` fills the templates.
"""

from trainer.report.page import render, report
from trainer.report.source import read_run

__all__ = ["read_run", "render", "report"]
