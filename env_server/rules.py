"""What decides a reply, beside the actions: two servers with equal rules answer alike.

The code counts as it is written: after an edit of a file named here, even of a comment, the rules
are others. So a changed amount or text can't go unnoticed.
"""

from importlib.metadata import version

from env_server.questions import QuestionBank
from env_server.settings import Settings
from shared.code_digest import code_digest

# of env_server/sql, what decides a result's text; the others start workers and wait for them
SQL = (
    *("describe_values", "empty_results", "jobs", "lookup", "misleading", "remarks", "remedies"),
    *("misread_texts", "run", "sandbox", "statement"),
)
# part -> the files and folders that decide it
CODE = {
    "rewards": ("env_server/rewards.py",),
    "verdicts": ("env_server/verifier", "shared/answers"),
    "observations": (
        *("env_server/episode.py", "env_server/render.py", "env_server/describe.py"),
        *("env_server/questions.py", "shared/actions.py", "shared/errors.py"),
        *("shared/order_by.py", "shared/sql_parser.py", "shared/sqltext.py"),
        *(f"env_server/sql/{name}.py" for name in SQL),
    ),
}


def rules_of(bank: QuestionBank, settings: Settings) -> dict[str, str]:
    """Return each part of the rules: a digest, a version or a setting."""
    return {
        **{part: code_digest(*paths) for part, paths in CODE.items()},
        "data": bank.data_digest,
        "limits": bank.limits.digest(),
        "sqlite": bank.sqlite_version,
        "sqlglot": version("sqlglot"),  # reads statements for their remarks
        "step_budget": str(settings.step_budget),
        "standard": settings.standard,
    }
