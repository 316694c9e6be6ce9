"""Audit of a data directory: execute every gold, and flag questions that cannot be trusted.

An error is a question that cannot be trained or measured on; a note is what a reader of a result
should know.
"""

from data.audit.flags import FLAGS, Finding, Severity
from data.audit.report import AuditReport, audit

__all__ = ["FLAGS", "AuditReport", "Finding", "Severity", "audit"]
