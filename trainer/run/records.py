"""The record of a played episode: made of a rollout's row, kept in a run's folder, and read there.

A line of episodes.jsonl is a record without what its agent read, which observations.jsonl.gz has: a
line with the fields `PLACE` and `observations`, the user messages of the episode. Each batch is a
gzip member of its own, so that a crash can cut only the last one.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from itertools import zip_longest
from operator import add
from pathlib import Path
from typing import Any

from pydantic import Field

from shared.dataset import AnyQuestion
from shared.run_files import EpisodeLine, LineError, check_seal, lines_of, opened
from shared.run_files import sealed as with_seal
from shared.run_stats import SEEN, UNSEEN
from trainer.config.settings import REWARD_WEIGHTS
from trainer.errors import RunError
from trainer.rollout.prompts import NO_ROWS, NOTE
from trainer.rollout.row import RolloutRow
from trainer.rollout.vote import Attempt, attempt_of
from trainer.run.folder import Run, append_lines, keep_lines, to_json, whole_lines, write_bytes

LEVEL = 6  # of gzip: 9 saves 2 % and takes twice the time
LEVELS = {"simple": 0, "moderate": 1, "challenging": 2}  # BIRD's
PLACE = ("phase", "mode", "step", "question_id", "sample")  # no two episodes of a run share one

Key = tuple[str, int]  # question id, number of the sample


class EpisodeRecord(EpisodeLine):
    prompt_tokens: int = 0  # read by a model
    sampled_tokens: int = 0  # written by a model
    answer: str | None = None  # `trainer.rollout.vote.answer_key`
    logprob: float | None = None  # mean of the sampled tokens; None if unknown
    named: tuple[str, ...] = ()  # words of the question in its last query
    remarks: tuple[str, ...] = ()  # "(no rows)" and notes below the results that it saw
    error_codes: tuple[str, ...] = ()  # of the actions that failed
    # what the agent read: the question, and the replies to its actions; empty if that is not kept
    seen: tuple[str, ...] = Field(default=(), exclude=True)

    @property
    def key(self) -> Key:
        return self.question_id, self.sample

    @property
    def attempt(self) -> Attempt:
        return Attempt(self.answer, self.logprob, self.named)

    @property
    def turns(self) -> tuple[tuple[str, str], ...]:
        """What the model wrote in each turn, and what it read next (empty after the last)."""
        written = [
            action or "" if text is None else text
            for text, action in zip_longest(self.texts, self.actions)
        ]
        replies = [*self.seen[1:], *[""] * len(written)]
        return tuple(zip(written, replies, strict=False))

    def sealed(self) -> dict[str, Any]:
        return with_seal(self.model_dump())


class Book:
    """All questions of a run by id, which turn a rollout's row into an `EpisodeRecord`. `train` are
    all training and open questions, filtered or not: the databases that they touch are `seen`."""

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
        levels = ((key, one.source_difficulty) for key, one in self._questions.items())
        rated = [(key, level) for key, level in levels if level]
        return dict(sorted(rated, key=lambda one: (LEVELS.get(one[1], len(LEVELS)), one[1])))

    def episode(
        self, row: RolloutRow, phase: str, mode: str, step: int = 0, *, logprobs: bool = False
    ) -> EpisodeRecord:
        """Return the record of an episode that was played in a phase after `step` steps. A run has
        no `logprobs`: their last digits depend on its number of processes."""
        question = self._questions[row.question_id]
        rewards = [getattr(row, name) for name in REWARD_WEIGHTS]
        # not sum(), whose result for floats depends on Python's version
        products = [
            weight * reward
            for weight, reward in zip(REWARD_WEIGHTS.values(), rewards, strict=True)
            if reward is not None
        ]
        attempt = attempt_of(row, question.question_text)
        lines = "\n".join(row.read).split("\n")
        return EpisodeRecord.model_validate(
            {
                **asdict(row.without_ids()),  # the fields of the same name
                "phase": phase,
                "mode": mode,
                "step": step,
                "sample": row.repeat,
                "database": question.database_name,
                "difficulty": question.difficulty,
                "part": self.part(question.database_name),
                "reward": None if None in rewards else reduce(add, products),
                "env_errors": len(row.env_errors),
                "error_codes": tuple(row.env_errors),
                "texts": [
                    None if text == action else text
                    for text, action in zip_longest(row.texts, row.actions)
                ],
                "answer": attempt.key,
                "logprob": attempt.logprob if logprobs else None,
                "named": attempt.named,
                "remarks": tuple(line for line in lines if line.startswith((NO_ROWS, NOTE))),
                "seen": tuple(row.read),
            }
        )


def append_records(run: Run, records: Sequence[EpisodeRecord]) -> None:
    run.path.mkdir(parents=True, exist_ok=True)
    lines = (
        {**{name: getattr(one, name) for name in PLACE}, "observations": one.seen}
        for one in records
    )
    with run.observations.open("ab") as file:
        file.write(_member(lines))
    append_lines(run.episodes, (one.sealed() for one in records))


def read_records(
    run: Run, wanted: Callable[[str, int], bool] = lambda phase, step: True, *, seen: bool = True
) -> Iterator[EpisodeRecord]:
    """Yield the episodes whose phase and step are `wanted`, without a last line that a crash cut;
    without `seen`, what their agents read is left out. `RunError` names a line that was changed."""
    read: dict[tuple[Any, ...], tuple[str, ...]] = {}
    for line in read_observations(run.observations) if seen else ():
        if wanted(line["phase"], line["step"]):
            read[tuple(line[name] for name in PLACE)] = tuple(line["observations"])
    for number, text in whole_lines(run.episodes):
        try:
            check_seal(text)
            record = EpisodeRecord.model_validate_json(text)
        except (LineError, ValueError) as error:
            reason = str(error).splitlines()[0]
            changed = f"{run.episodes} line {number} is not as it was written: {reason}"
            raise RunError(changed) from error
        if wanted(record.phase, record.step):
            texts = read.get(tuple(getattr(record, name) for name in PLACE), ())
            yield record.model_copy(update={"seen": texts}) if texts else record


def keep_records(run: Run, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
    """Drop the other episodes of a run, and what a crash cut; a row has the fields `PLACE`. All
    observations become one compressed member, which is a third of the size."""
    if run.observations.exists():
        kept = (one for one in read_observations(run.observations) if wanted(one))
        write_bytes(run.observations, _member(kept))
    keep_lines(run.episodes, wanted)


def read_observations(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with opened(path) as packed, gzip.open(packed) as file:
        try:
            for text in lines_of(file):
                line: dict[str, Any] = json.loads(text)
                if missing := [name for name in PLACE if name not in line]:
                    raise RunError(
                        f"{path} is of an older version (its lines have no {missing[0]}): read it "
                        "with the version that wrote it, or play the episodes again"
                    )
                yield line
        except (EOFError, ValueError, zlib.error, gzip.BadGzipFile):
            return


def _member(rows: Iterable[Mapping[str, Any]]) -> bytes:
    text = "".join(to_json(row) + "\n" for row in rows)
    return gzip.compress(text.encode(), LEVEL, mtime=0)
