"""The files of a run's folder and the format of their contents.

The trainer writes them, `python -m env_server verify` and `rescore` read them; neither imports the
other.

A line of episodes.jsonl is a JSON object with the fields of `EpisodeLine` and, last, `"sha256"`:
the digest of the line's own bytes without that field. An episode is its question, its options and
its actions; the line also keeps a digest of each observation, and the reward and its parts for each
step, so that a replay can be compared step by step.

SHA256SUMS has a line `<digest>  <path>` for every file of a finished run, in the format of
`sha256sum --check`, except `UNSUMMED`: files still being written when the run ends, checkpoints,
and the report, which is drawn from the others.
"""

import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any, Required

from pydantic import ValidationError

from shared.errors import DataError, first_problem
from shared.models import SQLObservation, StandardName
from shared.run_stats import Counts, Measurement, Rate
from shared.run_stats import EpisodeLine as EpisodeLine

CONFIG, EPISODES = "config.json", "episodes.jsonl"
METRICS, SUMMARY = "metrics.jsonl", "summary.json"
CHECKSUMS, REPORT, EVALUATION = "SHA256SUMS", "report.html", "evaluation.json"
UNSUMMED = ("checkpoints", "server.log", "wall.json", CHECKSUMS, REPORT)

MAX_FILE_BYTES = 4 * 1024**3  # episodes of a long training have 1 GB
MAX_LINE_BYTES = 64 * 1024**2  # an episode's longest observations have 1 MB
DIGEST_CHARS = 16  # per observation: 64 bits, for up to 101 of them per line
_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\Z')
_SUM = re.compile(r"([0-9a-f]{64})  (\S.*)")


class LineError(ValueError):
    """A line that differs from what was written."""


class InFolder:
    """A class attribute of a folder's class: the path of an entry, which may not exist."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFiles", owner: type | None = None) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFiles:
    """The files of a run's folder that both its writer and its auditor know."""

    path: Path

    config = InFolder(CONFIG)
    episodes = InFolder(EPISODES)
    metrics = InFolder(METRICS)
    summary = InFolder(SUMMARY)
    checksums = InFolder(CHECKSUMS)


class TimedMeasurement(Measurement):
    """A measurement as summary.json holds it."""

    wall_s: float


class RunSummary(Counts, total=False):
    """summary.json. Runs of older versions lack some of the keys."""

    run: Required[str]
    # mode -> overall, seen, unseen -> rate
    eval_success_random: dict[str, dict[str, Rate]]
    eval_success_before: dict[str, dict[str, Rate]]
    eval_success_after: dict[str, dict[str, Rate]]
    train_steps: Required[int]
    by_phase: dict[str, Counts]
    train_rebuilds: int
    # what the time of training was spent on
    rollout_s: float
    env_wait_s: float
    generate_s: float
    update_s: float
    rank_wait_s: float  # in runs of several processes
    cost: dict[str, Any]  # `trainer.run.cost`
    wall_s: Required[float]
    seed: Required[int]
    standard: StandardName  # of right answers
    versions: Required[dict[str, str]]
    digests: Required[dict[str, str]]  # data, server, model, trained_model
    config: dict[str, Any]
    git: dict[str, Any] | None
    sessions: int
    server_restarts: int
    processes: int
    live_failures: int
    evaluations: Required[dict[str, dict[str, TimedMeasurement]]]  # phase -> mode


def observation_digest(observation: SQLObservation) -> str:
    """Return the first hex digits of the SHA-256 of an observation's JSON, reward included."""
    return hashlib.sha256(observation.model_dump_json().encode()).hexdigest()[:DIGEST_CHARS]


def sealed(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return `row` with its digest as the last key. Its numbers must be finite."""
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    return {**row, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def check_seal(line: bytes) -> None:
    """Raise `LineError` if a line, line end included, lacks its digest or does not match it."""
    if not line.endswith(b"\n"):
        raise LineError("the line is cut short")
    match = _SEAL.search(line[:-1])
    if match is None:
        raise LineError('the line does not end with "sha256", so its content cannot be checked')
    if hashlib.sha256(line[: match.start()] + b"}").hexdigest().encode() != match[1]:
        raise LineError("the line does not match its sha256: it was changed after it was written")


def read_episode(line: bytes) -> EpisodeLine:
    """Return the episode of a line without checking its digest. `LineError` names a bad field."""
    try:
        return EpisodeLine.model_validate_json(line)
    except ValidationError as error:
        raise LineError(first_problem(error, "not an episode")) from None


def opened(path: Path) -> BufferedReader:
    """Open a file of a run's folder, which may come from elsewhere.

    Raises `OSError`, and `DataError` for a link, which could lead to any file, for a pipe, which
    may never end, and for a file of over `MAX_FILE_BYTES`.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path} is a link, or no file: copy the file into its place")
    if found.st_size > MAX_FILE_BYTES:
        raise DataError(f"{path} is over {MAX_FILE_BYTES:,} bytes: no run writes such a file")
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Return the content of a run's file; raises as `opened`."""
    with opened(path) as file:
        return file.read()


def lines_of(file: BufferedReader | GzipFile) -> Iterator[bytes]:
    """Yield the lines of a file; `DataError` for one of over `MAX_LINE_BYTES`, as a bomb has."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"{file.name} has a line of over {MAX_LINE_BYTES:,} bytes")
        yield line


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1. Raises as `opened` and `lines_of`."""
    with opened(path) as file:
        yield from enumerate(lines_of(file), start=1)


def checksums(run: Path) -> dict[str, str]:
    """Return relative path -> SHA-256 of every file of a run except `UNSUMMED`, sorted by path."""
    digests = {}
    for path in sorted(run.rglob("*")):
        inside = path.relative_to(run)
        if path.is_file() and inside.parts[0] not in UNSUMMED:
            with opened(path) as file:
                digests[inside.as_posix()] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def render_checksums(sums: Mapping[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


def read_checksums(content: bytes) -> dict[str, str]:
    """Read SHA256SUMS as relative path -> SHA-256; `LineError` names a bad line."""
    # not splitlines(), which would also split at other bytes that a path may hold
    *lines, rest = content.split(b"\n")
    if rest or not lines:
        raise LineError("the last line is cut short")
    digests: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _SUM.fullmatch(line.decode(errors="surrogateescape"))
        if match is None:
            raise LineError(f"line {number} is not '<sha256>  <path>'")
        if match[2] in digests:
            raise LineError(f"line {number} names {match[2]} again")
        digests[match[2]] = match[1]
    return digests
