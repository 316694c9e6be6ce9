"""A played question: its steps, and whether a query of the agent's returned its answer.

The right answer to a question about one's own database is unknown, so nothing here says that an
answer is right.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.actions import ActionType
from shared.models import Outcome
from trainer.rollout.parsing import parse_with_fallback
from trainer.rollout.prompts import REMARKS

REL_TOLERANCE = 0.01  # of a number that the answer rounds
NOTHING = ("", "null", "none", "[]")  # what agents answer where a query found nothing


@dataclass(frozen=True)
class PlayStep:
    """One turn: the agent's text, the action parsed from it, and the environment's reply."""

    step: int
    text: str
    action: ActionType
    argument: str
    parse_fallback: bool  # the text held no action and ran as a QUERY
    result: str
    error: str | None
    tokens: int | None  # of the text; None if the model's server does not count
    wall_s: float


@dataclass
class PlayedQuestion:
    """How one question was played. `said` is what the agent answered; see `answer`."""

    question: str
    unknown_names: Sequence[str] = ()  # of the question, which nothing in the database contains
    tables: list[str] = field(default_factory=list)
    steps: list[PlayStep] = field(default_factory=list)
    outcome: Outcome = Outcome.ABANDONED
    said: str | None = None
    stuck: bool = False  # it ended because the agent only repeated actions that failed
    context_overflow: bool = False
    context_truncations: int = 0  # how often old turns were dropped from the agent's context
    wall_s: float = 0.0

    @property
    def queries(self) -> list[PlayStep]:
        """The queries that worked, the last first."""
        steps = reversed(self.steps)
        return [one for one in steps if one.action is ActionType.QUERY and one.error is None]

    @property
    def source(self) -> PlayStep | None:
        """The last query whose result holds the answer."""
        if self.said is None:
            return None
        return next((one for one in self.queries if confirms(one.result, self.said)), None)

    @property
    def answer(self) -> str | None:
        """What the agent answered, if the result of one of its queries holds it."""
        return self.said if self.source is not None else None

    def repeats_failure(self, text: str) -> bool:
        """Return whether a turn's text is an action that failed before."""
        action = parse_with_fallback(text).action
        failed = {(one.action, _plain(one.argument)) for one in self.steps if one.error is not None}
        return (action.action_type, _plain(action.argument)) in failed

    @property
    def tokens(self) -> int | None:
        counts = [step.tokens for step in self.steps if step.tokens is not None]
        return sum(counts) if len(counts) == len(self.steps) else None

    def as_json(self) -> dict[str, Any]:
        query = self.source or next(iter(self.queries), None)
        return {
            **asdict(self),
            "answer": self.answer,
            "query": None if query is None else query.argument,
            "tokens": self.tokens,
        }


def _plain(argument: str) -> str:
    """Return an argument without what makes no other action of it."""
    return " ".join(argument.split()).rstrip("; ")


def is_nothing(answer: str) -> bool:
    """Return whether an answer says that there is nothing."""
    return answer.strip().casefold() in NOTHING


def confirms(result: str, answer: str) -> bool:
    """Return whether every value of an answer is a cell of a result, numbers up to rounding.

    An answer that there is nothing needs a result without a value.
    """
    rows = [row for row in result.split("\n")[1:] if not row.startswith(REMARKS)]
    cells = {cell.strip().casefold() for row in rows for cell in (row, *row.split(" | "))}
    if is_nothing(answer):
        return all(is_nothing(cell) for row in rows for cell in row.split(" | "))
    numbers = [number for cell in cells if (number := _number(cell)) is not None]

    def found(value: str) -> bool:
        if value.casefold() in cells:
            return True
        if (number := _number(value)) is not None:
            return any(math.isclose(number, one, rel_tol=REL_TOLERANCE) for one in numbers)
        return ", " in value and all(map(found, value.split(", ")))

    values = list(_values(answer))
    return bool(values) and all(map(found, values))


def _values(answer: str) -> Iterator[str]:
    """Yield the single values of an answer: JSON, or lines with `|` between values."""
    try:
        items = [json.loads(answer)]
    except (ValueError, RecursionError):  # nested too deeply
        items = re.split(r"[\n|]", answer)
    while items:
        item = items.pop()
        if isinstance(item, list):
            items += item
        elif isinstance(item, dict):
            items += item.values()
        else:
            yield "NULL" if item is None else str(item).strip()


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
