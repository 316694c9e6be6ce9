"""A run's folder as its auditor reads it: the files by name, and the format of a line of
episodes.jsonl.

The trainer writes them, `python -m env_server verify` and `rescore` read them; neither imports the
other.

A line of episodes.jsonl is a JSON object with the fields of `RecordedEpisode` and, last,
`"sha256"`: the digest of the line's own bytes without that field. An episode is its question, its
options and its actions; the line also keeps what the environment answered, a digest an observation
and a number a reward, so that a replay can be compared step by step.

SHA256SUMS has a line `<digest>  <path>` for every file of a finished run, as `sha256sum --check` reads it, but for
`UNSUMMED`: what is still being written when the run ends, checkpoints, and the page that is drawn from the rest.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from shared.models import Outcome, SQLObservation

CONFIG, EPISODES, METRICS, SUMMARY = (
    "config.json",
    "episodes.jsonl",
    "metrics.jsonl",
    "summary.json",
)
CHECKSUMS, REPORT = "SHA256SUMS", "report.html"
UNSUMMED = ("checkpoints", "server.log", "wall.json", CHECKSUMS, REPORT)

DIGEST_CHARS = 16  # of an observation: 64 bits, for up to 101 a line
_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\Z')
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")


class LineError(ValueError):
    """A line that is not what was written."""


@dataclass(frozen=True)
class RunFiles:
    """The files of a run's folder that its writer and its auditor both know. They may not exist."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def episodes(self) -> Path:
        return self.path / EPISODES

    @property
    def metrics(self) -> Path:
        return self.path / METRICS

    @property
    def summary(self) -> Path:
        return self.path / SUMMARY

    @property
    def checksums(self) -> Path:
        return self.path / CHECKSUMS


class RecordedEpisode(BaseModel):
    """One line of episodes.jsonl. The four rewards are None where the infrastructure lost the
    episode."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    phase: str  # train, random, before, eval, after; or the split that `trainer evaluate` measured
    mode: str  # greedy or sampled
    step: int  # the optimiser step that it trained, or after which it was measured
    question_id: str
    database: str
    difficulty: str
    part: str  # seen or unseen: whether a training question touches the database
    outcome: Outcome
    steps: int
    correctness: float | None
    progress: float | None  # the final potential
    operational: float | None
    reward: float | None  # the weighted sum of the three
    parse_failures: int
    env_errors: int
    context_overflow: bool  # it ended for want of room in the context window
    # times that its context was cut down; None where nothing counted them
    context_truncations: int | None = None
    actions: list[str]  # canonical texts, of the answered steps
    # As the model wrote them, null where that is the canonical text; one more than actions where it
    # got lost.
    texts: list[str | None]
    rewards: list[float]  # of each answered step
    observations: list[str]  # `observation_digest` of the reset's and of each step's

    @property
    def lost(self) -> bool:
        return self.outcome == Outcome.INFRA_FAILED


def observation_digest(observation: SQLObservation) -> str:
    """The first hex digits of the SHA-256 of an observation's JSON, reward included."""
    return hashlib.sha256(observation.model_dump_json().encode()).hexdigest()[:DIGEST_CHARS]


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with its seal at the end. Its numbers are finite and its values JSON's own."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return {**row, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def check_seal(line: bytes) -> None:
    """`LineError` where a line, its line end included, has no seal or another one than its bytes."""
    if not line.endswith(b"\n"):
        raise LineError("the line is cut short")
    found = _SEAL.search(line[:-1])
    if found is None:
        raise LineError('it does not end with "sha256", so nothing says what was written')
    if hashlib.sha256(line[: found.start()] + b"}").hexdigest().encode() != found[1]:
        raise LineError("its bytes are not those that its sha256 was made of")


def read_episode(line: bytes) -> RecordedEpisode:
    """The episode of a line, its seal aside. `LineError` says what is wrong with it."""
    try:
        return RecordedEpisode.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise LineError(
            f"{'.'.join(map(str, first['loc'])) or 'not an episode'}: {first['msg']}"
        ) from None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1."""
    with path.open("rb") as file:
        yield from enumerate(file, start=1)


def checksums(run: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file of a run but `UNSUMMED`, sorted by path."""
    found = {}
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run)
        if path.is_file() and inside.parts[0] not in UNSUMMED:
            with path.open("rb") as file:
                found[inside.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def render_checksums(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def read_checksums(content: bytes) -> dict[str, str]:
    """Relative path -> SHA-256, from the bytes of SHA256SUMS; `LineError` names the line that is
    none."""
    # a line ends in nothing else: no other byte may stand for it
    *lines, rest = content.split(b"\n")
    if rest or not lines:
        raise LineError("the last line is cut short")
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _SUM.fullmatch(line.decode(errors="surrogateescape"))
        if match is None:
            raise LineError(f"line {number} is not '<sha256>  <path>'")
        if match[2] in found:
            raise LineError(f"line {number} names {match[2]} again")
        found[match[2]] = match[1]
    return found
