"""What is kept of an episode once its tokens have been trained on: a record for files, tables and
transcripts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from shared.dataset import Question
from shared.models import Outcome
from shared.run_files import sealed
from trainer.rollout.row import RolloutRow

SEEN, UNSEEN = "seen", "unseen"


@dataclass(frozen=True)
class Turn:
    """One action, as the model wrote it, and what it was shown next (empty after the last)."""

    action: str
    observation: str


@dataclass(frozen=True)
class Episode:
    """One episode that was played. The three rewards are None where the infrastructure lost it."""

    question_id: str
    database: str
    difficulty: str
    part: str  # `seen` or `unseen`: whether a training question touches the database
    outcome: str
    steps: int
    correctness: float | None
    progress: float | None
    operational: float | None
    reward: float | None  # the weighted sum of the three
    parse_failures: int
    env_errors: int  # actions that the environment answered with an error
    context_overflow: bool  # it ended because the model's context window was full
    turns: tuple[Turn, ...]
    # times that its context was cut down; only turns before the first are trained
    context_truncations: int = 0
    # What an audit replays and compares: of each answered step its canonical action and its reward,
    # and the digests of the reset's observation and of each step's.
    actions: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    observations: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return self.outcome != Outcome.INFRA_FAILED

    @property
    def correct(self) -> bool:
        return self.outcome == Outcome.CORRECT

    def as_line(self, phase: str, mode: str, step: int) -> dict[str, Any]:
        """A row of episodes.jsonl (`shared.run_files`): phase (train, random, before, eval, after),
        mode (greedy, sampled), the step that it trained, or after which it was measured.
        Observations are left out but for their digests: replaying the actions gives them again."""
        line = {"phase": phase, "mode": mode, "step": step, **asdict(self)}
        del line["turns"]
        audited = {name: list(line.pop(name)) for name in ("actions", "rewards", "observations")}
        taken = [*self.actions, *[None] * (len(self.turns) - len(self.actions))]
        texts = [
            None if turn.action == text else turn.action
            for turn, text in zip(self.turns, taken, strict=True)
        ]
        return sealed({**line, "actions": audited.pop("actions"), "texts": texts, **audited})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Episode":
        """The episode that `dataclasses.asdict` wrote."""
        lists = {
            name: tuple(fields.get(name, ())) for name in ("actions", "rewards", "observations")
        }
        return cls(**{**fields, "turns": tuple(Turn(**turn) for turn in fields["turns"]), **lists})


def turns_of(transcript: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """The turns of a rollout row's messages: every assistant message with the user message after
    it."""
    turns = []
    for index, message in enumerate(transcript):
        if message["role"] == "assistant":
            following = (
                transcript[index + 1]
                if index + 1 < len(transcript)
                else {"role": "", "content": ""}
            )
            shown = str(following["content"]) if following["role"] == "user" else ""
            turns.append(Turn(str(message["content"]), shown))
    return tuple(turns)


class Book:
    """What is known of every question of a run, by id, so that a rollout's row becomes an
    `Episode`.

    `train` are all training questions, filtered or not: a database that one of them touches is
    `seen`.
    """

    def __init__(
        self, train: Iterable[Question], others: Iterable[Question], weights: Sequence[float]
    ) -> None:
        train = list(train)
        self.train_databases = frozenset(question.database_name for question in train)
        self._questions = {question.question_id: question for question in (*train, *others)}
        self._weights = tuple(weights)

    def part(self, database: str) -> str:
        return SEEN if database in self.train_databases else UNSEEN

    def text(self, question_id: str) -> str:
        return self._questions[question_id].question_text

    def episode(self, row: RolloutRow) -> Episode:
        """Return the record of a played episode."""
        question = self._questions[row.question_id]
        parts = (row.correctness, row.progress, row.operational)
        lost = any(part is None for part in parts)
        products = [
            weight * part
            for weight, part in zip(self._weights, parts, strict=True)
            if part is not None
        ]
        # sum() of floats depends on Python's version
        reward = None if lost else reduce(add, products)
        return Episode(
            question_id=question.question_id,
            database=question.database_name,
            difficulty=question.difficulty,
            part=self.part(question.database_name),
            outcome=str(row.outcome),
            steps=row.steps,
            correctness=parts[0],
            progress=parts[1],
            operational=parts[2],
            reward=reward,
            parse_failures=row.parse_failures,
            env_errors=len(row.env_errors),
            context_overflow=row.context_overflow,
            turns=turns_of(row.transcript),
            context_truncations=row.context_truncations,
            actions=tuple(row.actions),
            rewards=tuple(row.rewards),
            observations=tuple(row.observations),
        )
