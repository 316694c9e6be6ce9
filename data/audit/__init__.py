"""Audit of a data directory: execute every gold, and flag questions that cannot be trusted.

An error is a question that cannot be trained or measured on; a note is what a reader of a result
should know.
"""

from data.audit.flags import ERRORS, NOTES, Finding
from data.audit.report import AuditReport, audit

__all__ = ["ERRORS", "NOTES", "AuditReport", "Finding", "audit"]
