"""A played question: its attempts, whether they agree, and whether a query returned the answer.

The right answer to a question about one's own database is unknown, so nothing here says that an
answer is right.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shared.actions import ActionType
from shared.models import Outcome
from trainer.rollout.parsing import parse_with_fallback
from trainer.rollout.prompts import result_rows
from trainer.rollout.vote import NOTHING, Attempt, Value, answer_key, read_answer, read_value, vote

REL_TOLERANCE = 0.01  # of a number that the answer rounds


@dataclass(frozen=True)
class PlayStep:
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
class PlayedAttempt:
    """How one attempt at a question was played. `said` is what the agent answered; see `answer`."""

    steps: list[PlayStep] = field(default_factory=list)
    outcome: Outcome = Outcome.ABANDONED
    said: str | None = None
    key: str | None = None  # equal for answers that agree: `trainer.rollout.vote.answer_key`
    logprob: float | None = None  # mean of the sampled tokens; None if unknown
    named: tuple[str, ...] = ()  # words of the question in its last query
    stuck: bool = False  # it ended because the agent only repeated actions that failed
    lost: str | None = None  # the error of the infrastructure that ended it
    context_overflow: bool = False
    context_truncations: int = 0  # how often old turns were dropped from the agent's context
    doubts: dict[str, list[str]] = field(default_factory=dict)  # query -> why it may mislead

    @property
    def queries(self) -> list[PlayStep]:
        """The queries that worked, the last first."""
        steps = reversed(self.steps)
        return [one for one in steps if one.action is ActionType.QUERY and one.error is None]

    @property
    def sources(self) -> list[PlayStep]:
        """The queries whose results hold the answer, the last first."""
        if self.said is None:
            return []
        return [one for one in self.queries if confirms(one.result, self.said)]

    @property
    def source(self) -> PlayStep | None:
        """The last query whose result holds the answer, if possible one without doubts."""
        return min(self.sources, key=lambda one: bool(self.doubts.get(one.argument)), default=None)

    @property
    def answer(self) -> str | None:
        """What the agent answered, if a query's result holds it and nothing makes that query
        doubtful."""
        source = self.source
        return self.said if source is not None and not self.doubts.get(source.argument) else None

    def repeats_failure(self, text: str) -> bool:
        action = parse_with_fallback(text).action
        failed = {(one.action, _plain(one.argument)) for one in self.steps if one.error is not None}
        return (action.action_type, _plain(action.argument)) in failed

    @property
    def tokens(self) -> int | None:
        return total_tokens(self.steps)

    @property
    def query(self) -> PlayStep | None:
        return self.source or next(iter(self.queries), None)

    def as_json(self) -> dict[str, Any]:
        query = None if self.query is None else self.query.argument
        return {**asdict(self), "answer": self.answer, "query": query, "tokens": self.tokens}


@dataclass
class PlayedQuestion:
    """How a question was played: its attempts, of which at least `agree` must agree."""

    question: str
    unknown_names: Sequence[str] = ()  # of the question, which nothing in the database contains
    attempts: list[PlayedAttempt] = field(default_factory=lambda: [PlayedAttempt()])
    agree: int = 1
    tables: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def readings(self) -> list[tuple[int, PlayedAttempt]]:
        """How many attempts agree on each answer, and one of them, confirmed if any is."""
        found = []
        for group in vote([Attempt(one.key, one.logprob, one.named) for one in self.attempts]):
            members = [self.attempts[place] for place in group.members]
            found.append((len(members), min(members, key=lambda one: one.answer is None)))
        return found

    @property
    def leader(self) -> tuple[int, PlayedAttempt]:
        """The first reading; (0, the first attempt) if no attempt has an answer."""
        return next(iter(self.readings), (0, self.attempts[0]))

    @property
    def answer(self) -> str | None:
        agreeing, attempt = self.leader
        return attempt.answer if agreeing >= self.agree else None

    @property
    def steps(self) -> list[PlayStep]:
        return [step for attempt in self.attempts for step in attempt.steps]

    @property
    def tokens(self) -> int | None:
        return total_tokens(self.steps)

    def as_json(self) -> dict[str, Any]:
        agreeing, attempt = self.leader
        return {
            "question": self.question,
            "unknown_names": list(self.unknown_names),
            "tables": self.tables,
            "answer": self.answer,
            "query": None if attempt.query is None else attempt.query.argument,
            "agreeing": agreeing,
            "agree": self.agree,
            "tokens": self.tokens,
            "wall_s": self.wall_s,
            "attempts": [one.as_json() for one in self.attempts],
        }


def total_tokens(steps: Sequence[PlayStep]) -> int | None:
    """Return the tokens of the steps; None if the model's server does not count."""
    counts = [step.tokens for step in steps if step.tokens is not None]
    return sum(counts) if len(counts) == len(steps) else None


def _plain(argument: str) -> str:
    return " ".join(argument.split()).rstrip("; ")


def is_nothing(answer: str) -> bool:
    return answer_key(answer) == NOTHING


def confirms(result: str, answer: str) -> bool:
    """Return whether every value of an answer is a cell of a result, decimals up to rounding; an
    answer that there is nothing needs a result without a value."""
    texts = [cell for row in result_rows(result) for cell in row]
    cells = set(map(read_value, texts))
    values = [value for row in read_answer(answer, [result]) for value in row if value is not None]
    if not values:
        return cells <= {None}
    # of a whole number, such as a year or an id, none is near
    decimals = [read_value(text) for text in texts if "." in text]
    numbers = [one for one in decimals if isinstance(one, int | float)]

    def found(value: Value) -> bool:
        if value in cells:
            return True
        if not isinstance(value, int | float) or abs(value) > sys.float_info.max:
            return False
        return any(math.isclose(value, one, rel_tol=REL_TOLERANCE) for one in numbers)

    return all(map(found, values))
