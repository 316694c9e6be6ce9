"""observations.jsonl.gz: what the agent read in each episode of training or of an evaluation.

A line `{"step", "question_id", "observations"}` belongs to the training line of episodes.jsonl at
the same place of the same step. `observations` are the user messages of the episode. Each batch is
a gzip member of its own, so that a crash can cut only the last one.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.rollout.row import RolloutRow
from trainer.run.folder import to_json, write_bytes

LEVEL = 6  # of gzip: 9 saves 2 % and takes twice the time


def texts_of(row: RolloutRow) -> list[str]:
    """Return the user messages of an episode."""
    return [one["content"] for one in row.transcript if one["role"] == "user"]


def append_observations(
    path: Path, step: int, rows: Sequence[RolloutRow], samples: Sequence[int] = ()
) -> None:
    """Append the observations of a batch of step `step`; `samples` are numbers of an evaluation."""
    lines: list[dict[str, Any]] = [
        {"step": step, "question_id": row.question_id, "observations": texts_of(row)}
        for row in rows
    ]
    for line, sample in zip(lines, samples, strict=False):
        line["sample"] = sample
    with path.open("ab") as file:
        file.write(_member(lines))


def read_observations(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines, none if the file is missing, without those of a member cut by a crash."""
    if not path.exists():
        return
    with gzip.open(path, "rb") as file:
        try:
            for line in file:
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
