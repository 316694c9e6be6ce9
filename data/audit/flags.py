"""Every flag of the audit, in one table."""

from dataclasses import dataclass

from data.golds.execute import KEEP, KEEP_OVERSIZE, Reason
from shared.dataset import Question


def kept_flag(reason: Reason) -> str:
    """Return the flag of a gold that an import kept on request in spite of `reason`."""
    return f"kept-{reason}"


# flag -> meaning, in the order in which they are shown. A question with an error cannot be trusted.
ERRORS: dict[str, str] = {
    Reason.FAILING: "the gold is not one SELECT that runs",
    Reason.EMPTY: "the gold returns no row",
    Reason.NULL: "the gold returns nothing but NULL",
    Reason.TIED: "equal sort keys allow more than one right answer",
    Reason.ORDER: "the result depends on the order in which rows are scanned",
    Reason.UNDECIDED: "numbers or dates as text, or NULLs, can be read with another answer",
    Reason.OVERSIZE: "the result is larger than what an agent is shown",
    Reason.RUNAWAY: "the gold takes more steps than an agent's query may",
    Reason.UNSTABLE: "the result is non-deterministic, or not a number or text",
    "blank": "the question has no text",
    "stale": "the stored answer or its type is not what the gold returns",
    "guessable-number": "the answer is a number in the question",
    "guessable-text": "the question's own words contain the answer",
    "guessable-constant": "one answer is right for too many questions of its split",
    "duplicate": "two splits ask the same of the same database",
    "near-duplicate": "two splits ask the same of the same database except for a value",
    "shared-database": (
        "an unseen database of the eval split is a training database under another name"
    ),
    "dev-question": "a question reserved for measuring is in the training split",
}
# what a reader of a result should know
NOTES: dict[str, str] = {
    "guessable-one": "the answer is 1, the result of SELECT 1",
    "guessable-mode": "at least half of the rows of its column hold the answer",
    "null-cells": "some cells of the answer are NULL",
    **{
        kept_flag(reason): f"{ERRORS[reason]}; kept on request by the import"
        for reason in sorted(KEEP_OVERSIZE.union(*KEEP.values()))
    },
}


@dataclass(frozen=True)
class Finding:
    """One flag on one question, with one line of detail."""

    flag: str
    split: str
    question_id: str
    database: str
    detail: str

    @classmethod
    def on(cls, question: Question, flag: str, split: str, detail: str) -> "Finding":
        return cls(flag, split, question.question_id, question.database_name, detail)

    @property
    def severity(self) -> str:
        return "error" if self.flag in ERRORS else "note"
