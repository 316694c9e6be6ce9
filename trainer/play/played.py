"""A played question: its steps, the query that the answer rests on, and the reasons to doubt it.

The right answer to a question about one's own database is unknown, so nothing here says that an
answer is right.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.actions import ActionType
from shared.models import Outcome

REL_TOLERANCE = 0.01  # of a number that the answer rounds


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
    error_code: str | None
    steps_left: int
    tokens: int | None  # of the text; None if the model's server does not count
    agent_s: float
    env_s: float


@dataclass
class PlayedQuestion:
    """How one question was played. `answer` is None if the agent gave none; see `outcome`."""

    question: str
    tables: list[str] = field(default_factory=list)
    steps: list[PlayStep] = field(default_factory=list)
    outcome: Outcome = Outcome.ABANDONED
    answer: str | None = None
    context_overflow: bool = False
    too_large: bool = False  # its actions reached the server's limit on bytes
    context_truncations: int = 0  # how often old turns were dropped from the agent's context
    operational_reward: float | None = None
    wall_s: float = 0.0

    @property
    def query(self) -> PlayStep | None:
        """The query that the answer rests on: the last that worked."""
        worked = [
            step for step in self.steps if step.action is ActionType.QUERY and step.error is None
        ]
        return worked[-1] if worked else None

    @property
    def doubts(self) -> list[str]:
        """The reasons to doubt the answer, each of which is frequent among wrong ones."""
        if self.answer is None:
            return []
        doubts = []
        if self.query is None:
            doubts.append("no query behind it worked")
        elif self.query.result.endswith("\n(no rows)"):
            doubts.append("the query behind it returned no rows")
        elif not _is_in(self.answer, self.query.result):
            doubts.append("it is not in the result of the query")
        failed = Counter(
            (step.action, step.argument) for step in self.steps if step.error is not None
        )
        if any(count > 1 for count in failed.values()):
            doubts.append("an action that failed was repeated")
        return doubts

    @property
    def tokens(self) -> int | None:
        counts = [step.tokens for step in self.steps if step.tokens is not None]
        return sum(counts) if len(counts) == len(self.steps) else None

    @property
    def agent_s(self) -> float:
        return sum(step.agent_s for step in self.steps)

    @property
    def fallbacks(self) -> int:
        return sum(step.parse_fallback for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "answer": self.answer,
            "outcome": str(self.outcome),
            "query": None if self.query is None else self.query.argument,
            "doubts": self.doubts,
            "tables": self.tables,
            "context_overflow": self.context_overflow,
            "too_large": self.too_large,
            "context_truncations": self.context_truncations,
            "operational_reward": self.operational_reward,
            "parse_fallbacks": self.fallbacks,
            "tokens": self.tokens,
            "agent_s": round(self.agent_s, 4),
            "wall_s": round(self.wall_s, 4),
            "steps": [asdict(step) for step in self.steps],
        }


def _is_in(answer: str, result: str) -> bool:
    """Return whether every value of an answer is a cell of a result, numbers up to rounding."""
    _, *rows = result.split("\n")
    cells = {cell.strip().casefold() for row in rows for cell in (row, *row.split(" | "))}
    numbers = [number for cell in cells if (number := _number(cell)) is not None]
    return all(
        value.casefold() in cells
        or (
            (number := _number(value)) is not None
            and any(math.isclose(number, one, rel_tol=REL_TOLERANCE) for one in numbers)
        )
        for value in _values(answer)
    )


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
