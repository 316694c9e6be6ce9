"""The records of played episodes, kept for files, tables and transcripts after training on them.

observations.jsonl.gz has what the agent read in each episode of training or of an evaluation: a
line `{"step", "question_id", "observations"}` belongs to the training line of episodes.jsonl at the
same place of the same step. `observations` are the user messages of the episode. Each batch is a
gzip member of its own, so that a crash can cut only the last one.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import zip_longest
from operator import add
from pathlib import Path
from typing import Any

from shared.dataset import AnyQuestion
from shared.run_files import lines_of, opened, sealed
from shared.run_stats import SEEN, UNSEEN, PlayedEpisode
from trainer.config import REWARD_WEIGHTS
from trainer.rollout.row import RolloutRow
from trainer.run.folder import to_json, write_bytes

LEVEL = 6  # of gzip: 9 saves 2 % and takes twice the time
LEVELS = {"simple": 0, "moderate": 1, "challenging": 2}  # BIRD's


@dataclass(frozen=True)
class Turn:
    """An action as the model wrote it, and the observation shown next (empty after the last)."""

    action: str
    observation: str


class EpisodeRecord(PlayedEpisode):
    """A played episode with its texts. Only turns before the first truncation are trained."""

    turns: tuple[Turn, ...]

    def as_line(self, phase: str, mode: str, step: int, **more: Any) -> dict[str, Any]:
        """Return the sealed row of episodes.jsonl (`shared.run_files`), with the fields `more`."""
        unanswered = [None] * (len(self.turns) - len(self.actions))
        texts = [
            None if turn.action == action else turn.action
            for turn, action in zip(self.turns, (*self.actions, *unanswered), strict=True)
        ]
        place = {"phase": phase, "mode": mode, "step": step}
        return sealed({**place, **self.model_dump(exclude={"turns"}), "texts": texts, **more})

    @classmethod
    def of_line(cls, line: Mapping[str, Any], seen: Sequence[str] | None) -> "EpisodeRecord":
        """Return the record of a line of episodes.jsonl and what its agent read.

        `seen` are the texts of `read_observations`. Without them, or with those of another
        episode, the observations of the turns are empty.
        """
        actions, texts = line["actions"], line["texts"]
        written = [
            text if text is not None else action
            for text, action in zip(texts, [*actions, ""][: len(texts)], strict=True)
        ]
        replies = list(seen[1:]) if seen else []
        replies += [""] * (len(written) - len(replies))
        turns = tuple(map(Turn, written, replies))
        return cls.model_validate({**line, "turns": turns})


def turns_of(row: RolloutRow) -> tuple[Turn, ...]:
    """Return the turns that were played: each assistant message and the user's after it."""
    end = {"role": "", "content": ""}
    return tuple(
        Turn(message["content"], after["content"] if after["role"] == "user" else "")
        for message, after in zip(row.transcript, [*row.transcript, end][1:], strict=True)
        if message["role"] == "assistant"
    )


class Book:
    """All questions of a run by id, which turn the row of a rollout into an `EpisodeRecord`.

    `train` are all training and open questions, filtered or not: the databases that they touch are
    `seen`.
    """

    def __init__(self, train: Iterable[AnyQuestion], others: Iterable[AnyQuestion]) -> None:
        train = list(train)
        self._train_databases = frozenset(question.database_name for question in train)
        self._questions = {question.question_id: question for question in (*train, *others)}

    def part(self, database: str) -> str:
        return SEEN if database in self._train_databases else UNSEEN

    def text(self, question_id: str) -> str:
        return self._questions[question_id].question_text

    @property
    def source_difficulties(self) -> dict[str, str]:
        """The difficulties that the data set itself gives, by question, in a fixed order."""
        levels = ((key, one.source_difficulty) for key, one in self._questions.items())
        rated = [(key, level) for key, level in levels if level]
        return dict(sorted(rated, key=lambda one: (LEVELS.get(one[1], len(LEVELS)), one[1])))

    def episode(self, row: RolloutRow) -> EpisodeRecord:
        """Return the record of a played episode."""
        question = self._questions[row.question_id]
        rewards = [getattr(row, name) for name in REWARD_WEIGHTS]
        # not sum(), whose result for floats depends on Python's version
        products = [
            weight * reward
            for weight, reward in zip(REWARD_WEIGHTS.values(), rewards, strict=True)
            if reward is not None
        ]
        return EpisodeRecord.model_validate(
            {
                **asdict(row.without_ids()),  # the fields of the same name
                "database": question.database_name,
                "difficulty": question.difficulty,
                "part": self.part(question.database_name),
                "reward": None if None in rewards else reduce(add, products),
                "env_errors": len(row.env_errors),
                "turns": turns_of(row),
            }
        )


def append_observations(
    path: Path, step: int, rows: Sequence[RolloutRow], samples: Sequence[int] = ()
) -> None:
    """Append the observations of a batch of step `step`; `samples` are numbers of an evaluation."""
    lines = []
    for row, sample in zip_longest(rows, samples):
        texts = [one["content"] for one in row.transcript if one["role"] == "user"]
        line = {"step": step, "question_id": row.question_id, "observations": texts}
        lines.append(line if sample is None else {**line, "sample": sample})
    with path.open("ab") as file:
        file.write(_member(lines))


def read_observations(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines, none if the file is missing, without those of a member cut by a crash."""
    if not path.exists():
        return
    with opened(path) as packed, gzip.open(packed) as file:
        try:
            for line in lines_of(file):
                yield json.loads(line)
        except (EOFError, ValueError, zlib.error, gzip.BadGzipFile):
            return


def drop_observations(path: Path, done: int) -> None:
    """Delete the lines of steps after `done`, which a resumed run plays again."""
    if path.exists():
        write_bytes(path, _member(one for one in read_observations(path) if one["step"] <= done))


def _member(rows: Iterable[Mapping[str, Any]]) -> bytes:
    text = "".join(to_json(row) + "\n" for row in rows)
    return gzip.compress(text.encode(), LEVEL, mtime=0)
