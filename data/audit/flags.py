"""Every flag of the audit, in one table."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from data.golds.execute import Reason


class Level(StrEnum):
    """How much a finding weighs."""

    ERROR = "error"  # the question can't be trusted; the audit fails
    NOTE = "note"  # a reader of a result should know


_GOLDS = {
    Reason.FAILING: "the gold is not one SELECT that runs",
    Reason.EMPTY: "the gold returns no row",
    Reason.NULL: "the gold returns nothing but NULL",
    Reason.TIED: "equal sort keys leave more than one answer right",
    Reason.ORDER: "the result hangs on the order in which rows are scanned",
    Reason.OVERSIZE: "the result is more than an agent is shown",
    Reason.RUNAWAY: "the gold takes more steps than an agent's query may",
    Reason.UNSTABLE: "the result hangs on the clock or on chance, or is no text or number",
}

# flag -> (level, what it says), in the order in which they are shown
FLAGS: dict[str, tuple[Level, str]] = {
    **{str(reason): (Level.ERROR, text) for reason, text in _GOLDS.items()},
    "same-id": (Level.ERROR, "two questions have one id, and no server takes such data"),
    "blank": (Level.ERROR, "the question has no text"),
    "stale": (Level.ERROR, "the stored answer or its type is not what the gold returns"),
    "guessable-number": (Level.ERROR, "a number in the question is the answer"),
    "guessable-text": (Level.ERROR, "the question's own words hold the answer"),
    "guessable-constant": (Level.ERROR, "one answer is right for too many questions of its part"),
    "duplicate": (Level.ERROR, "two splits ask the same of the same database"),
    "near-duplicate": (Level.ERROR, "two splits ask the same of the same database but for a value"),
    "shared-database": (
        Level.ERROR,
        "an unseen database of the eval split is a training database under another name",
    ),
    "dev-question": (
        Level.ERROR,
        "a question that is for measuring alone is in the training split",
    ),
    "guessable-one": (Level.NOTE, "the answer is 1, as of SELECT 1"),
    "guessable-mode": (Level.NOTE, "the answer is what half of its column's rows hold, or more"),
    "repeated": (Level.NOTE, "one split asks the same of the same database twice"),
    "null-cells": (Level.NOTE, "some cells of the answer are NULL"),
}


@dataclass(frozen=True)
class Finding:
    """One flag on one question, with one line of detail."""

    flag: str
    split: str
    question_id: str
    database: str
    detail: str

    @property
    def level(self) -> Level:
        return FLAGS[self.flag][0]

    def as_json(self) -> dict[str, Any]:
        return {"level": str(self.level), **vars(self)}
