"""The G rollouts of one question in one training step, whose rewards GRPO compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shared.models import Outcome

Row = Mapping[str, Any]  # a line of episodes.jsonl


@dataclass(frozen=True)
class Group:
    """One question's rollouts in a step."""

    step: int
    question_id: str
    rollouts: Sequence[Row]

    @property
    def correct(self) -> int:
        return sum(row["outcome"] == Outcome.CORRECT for row in self.rollouts)

    @property
    def rewards(self) -> list[float]:
        """The rewards of the rollouts that were not lost."""
        return [row["reward"] for row in self.rollouts if row["reward"] is not None]

    @property
    def contrast(self) -> bool:
        """Whether some rollouts are correct and some finished ones are not."""
        return 0 < self.correct < len(self.rewards)

    @property
    def mean(self) -> float | None:
        return sum(self.rewards) / len(self.rewards) if self.rewards else None


def chosen_steps(steps: Sequence[int], count: int) -> list[int]:
    """Return at most `count` of the sorted steps: the first, the last, and some evenly between."""
    if count >= len(steps):
        return list(steps)
    gap = (len(steps) - 1) / max(1, count - 1)
    return [steps[round(place * gap)] for place in range(count)]


def groups(step: int, rows: Sequence[Row], size: int) -> list[Group]:
    """Cut a generation batch into groups: the rows of a question, in order, `size` in each."""
    by_question: dict[str, list[Row]] = {}
    for row in rows:
        by_question.setdefault(row["question_id"], []).append(row)
    return [
        Group(step, question, members[start : start + size])
        for question, members in by_question.items()
        for start in range(0, len(members), size)
    ]
