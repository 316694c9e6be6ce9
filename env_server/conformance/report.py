"""The table of findings: a line each as it comes, the groups' counts at the end; and the same as
JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from env_server.conformance.check import Finding

_NAME = 64


def line(finding: Finding) -> str:
    """One finding. A failure's reason has a line of its own."""
    name = finding.name if len(finding.name) <= _NAME else finding.name[: _NAME - 1] + "…"
    head = f"{finding.status:<5}{finding.group:<13}{name:<{_NAME}}{1000 * finding.seconds:>7.0f} ms"
    if not finding.detail:
        return head
    return (
        f"{head}\n     {finding.detail}"
        if finding.status == "FAIL"
        else f"{head}  {finding.detail}"
    )


def summary(findings: Sequence[Finding]) -> str:
    """Counts by group and in all, and the names of what failed."""
    groups = list(dict.fromkeys(finding.group for finding in findings))
    rows = []
    for group in [*groups, "all"]:
        of = [finding.status for finding in findings if group in (finding.group, "all")]
        rows.append(
            f"{group:<13}{of.count('ok'):>5} ok{of.count('FAIL'):>5} failed{of.count('skip'):>5} left out"
        )
    failed = [
        f"FAIL {finding.group}: {finding.name}" for finding in findings if finding.status == "FAIL"
    ]
    return "\n".join(["", *rows, *failed])


def as_json(url: str, findings: Sequence[Finding]) -> dict[str, Any]:
    """`{url, ok, findings: [{group, name, status, detail, seconds}]}`."""
    return {
        "url": url,
        "ok": passed(findings),
        "findings": [asdict(finding) for finding in findings],
    }


def passed(findings: Sequence[Finding]) -> bool:
    """Whether something was checked and nothing failed."""
    return any(finding.status == "ok" for finding in findings) and all(
        f.status != "FAIL" for f in findings
    )
