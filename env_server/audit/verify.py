"""Audit a run: play every recorded episode again and compare everything that follows, byte by byte.

Compared are each line of episodes.jsonl with its digest and with its replay; the questions with
those that the settings ask; metrics.jsonl and summary.json with the episodes; and the files with
SHA256SUMS. Not compared: that the tokens were sampled from the named model, losses, gradients,
times, and how an invalid text became an action.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env_server.audit.asked import question_differences
from env_server.audit.recompute import (
    evaluation_differences,
    metrics_differences,
    summary_differences,
)
from env_server.audit.run_folder import Progress, RunFolder
from env_server.questions import QuestionBank
from env_server.rewards import REWARD_VERSION, RULES
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql.pool import SqlPool
from shared import run_files
from shared.errors import DataError, SQLEnvError
from shared.models import Outcome, StepResult
from shared.run_files import CHECKSUMS, EVALUATION, EpisodeLine, LineError
from shared.run_stats import SEEN, UNSEEN

Replies = Sequence[StepResult]  # the reset's first


@dataclass(frozen=True)
class Problem:
    """A difference between a file and the replay. `line` counts from 1; 0 is the whole file."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}{f' line {self.line}' if self.line else ''}: {self.message}"


@dataclass
class Report:
    # (phase, mode) -> counts of episodes, correct ones, observations and rewards
    phases: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    judged_by: str = ""  # which data and rules
    metrics_rows: int = 0
    files: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cause: str = ""  # of differences: what the run's server had other than this code
    wall_s: float = 0.0

    @property
    def episodes(self) -> int:
        return sum(counts["episodes"] for counts in self.phases.values())

    def add(self, file: Path, message: str, line: int = 0) -> None:
        self.problems.append(Problem(file.name, line, message))


async def verify_run(
    path: Path,
    *,
    data_dir: Path | None = None,
    sql: SqlPool | None = None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Audit the run in `path`, with its SQL on new processes, or on `sql`."""
    start = time.monotonic()
    run = RunFolder.open(path)
    bank, report = run.bank(data_dir), Report()
    config = run.settings.config
    report.judged_by = (
        f"the data in {data_dir or config.db_dir.parent} (digest {bank.data_digest[:12]}), by the "
        f"standard {config.standard}, with {config.step_budget} steps per episode"
    )
    _check_versions(run, bank, report)
    lines = []
    for number, read in run.lines():
        if isinstance(read, LineError):
            report.add(run.episodes, str(read), number)
        else:
            lines.append((number, read))
    unread, trained = len(report.problems), [*bank.splits.get(run.train_split, ()), *bank.open]
    train_databases = frozenset(question.database_name for question in trained)
    if not lines and not unread:
        raise DataError(f"{run.episodes} has no episodes yet: nothing to verify")
    async with nullcontext(sql) if sql else SqlPool(limits=bank.limits) as running:
        async for number, episode, replies in run.replay(bank, running, lines):
            if isinstance(replies, SQLEnvError):
                report.add(run.episodes, f"can't be replayed: {replies.message}", number)
            else:
                for text in episode_differences(episode, replies, bank, train_databases):
                    report.add(run.episodes, text, number)
            report.phases.setdefault((episode.phase, episode.mode), Counter()).update(
                episodes=1,
                correct=int(episode.correct),
                observations=len(episode.observations),
                rewards=len(episode.rewards),
            )
            progress(report.episodes, len(lines))
    if unread:
        report.notes.append("not compared, as lines can't be read: metrics and summary")
    else:
        episodes = [episode for _, episode in lines]
        for text in question_differences(run, bank, episodes, report.notes):
            report.add(run.episodes, text)
        _compare_results(run, episodes, report)
    _compare_files(run, report)
    report.problems.sort(key=lambda problem: (problem.file, problem.line))
    report.wall_s = time.monotonic() - start
    return report


def episode_differences(
    recorded: EpisodeLine, replies: Replies, bank: QuestionBank, train_databases: frozenset[str]
) -> Iterator[str]:
    """Yield where a recorded episode differs from its replay; `replies` start with the reset's."""
    if recorded.lost and not recorded.observations:
        replies = []  # not even its reset was answered
    steps = replies[1:]
    replayed: dict[str, list[Any]] = {
        "observations": [run_files.observation_digest(reply.observation) for reply in replies],
        "rewards": [reply.reward for reply in steps],
        "parts": [reply.ledger.step for reply in steps],
    }
    for name, values in replayed.items():
        written = getattr(recorded, name) or []
        if len(written) != len(values):
            yield f"{len(recorded.actions)} actions, but {len(written)} {name}"
        first = int(name != "observations")  # the reset is step 0 and has no reward
        for step, (was, now) in enumerate(zip(written, values, strict=False), first):
            if was != now:
                yield f"step {step}: {name}: recorded {was!r}, replayed {now!r}"
    for name, now in _expected(recorded, replies, bank, train_databases).items():
        if (was := getattr(recorded, name)) != now:
            yield f"{name}: recorded {was!s}, replayed {now!s}"
    yield from _text_differences(recorded)


def _expected(
    recorded: EpisodeLine, replies: Replies, bank: QuestionBank, train_databases: frozenset[str]
) -> dict[str, Any]:
    """Return the fields of a line that follow from the question and the replies."""
    question = bank.get(recorded.question_id)
    ledger = replies[-1].ledger if replies and not recorded.lost else None
    if replies and replies[-1].done:
        outcome = replies[-1].info.outcome or Outcome.BUDGET
    else:  # the driver abandoned an episode that has not ended
        outcome = Outcome.INFRA_FAILED if recorded.lost else Outcome.ABANDONED
    return {
        "database": question.database_name,
        "difficulty": question.difficulty,
        "part": SEEN if question.database_name in train_databases else UNSEEN,
        "steps": len(recorded.actions),
        "outcome": outcome,
        "correctness": ledger.correctness if ledger else None,
        "progress": ledger.potential if ledger else None,
        "operational": ledger.operational if ledger else None,
        "reward": RULES.weighted(ledger) if ledger else None,
        "env_errors": sum(reply.observation.error is not None for reply in replies),
    }


def _text_differences(recorded: EpisodeLine) -> Iterator[str]:
    extra = len(recorded.texts) - len(recorded.actions)
    if extra not in ((0, 1) if recorded.lost else (1,) if recorded.too_large else (0,)):
        yield f"{len(recorded.actions)} actions, but {len(recorded.texts)} texts"
    changed = sum(text is not None for text in recorded.texts)
    if recorded.parse_failures > changed:
        yield f"parse_failures is {recorded.parse_failures}, but {changed} texts were changed"
    for name in ("context_overflow", "too_large"):
        if getattr(recorded, name) and recorded.outcome != Outcome.ABANDONED:
            yield f"{name}, but the outcome is {recorded.outcome}"
    if recorded.context_truncations and recorded.context_truncations >= len(recorded.texts):
        turns = len(recorded.texts)
        yield f"context_truncations is {recorded.context_truncations}, of {turns} turns"


def _check_versions(run: RunFolder, bank: QuestionBank, report: Report) -> None:
    written = run.settings.reward_version
    if written != REWARD_VERSION:
        difference = f"{run.path} has reward version {written!r}, this code {REWARD_VERSION!r}"
        raise DataError(f"{difference}: verify it with the code that made it, or use rescore")
    ours = Settings.model_construct(standard=run.settings.config.standard)  # ignores SQLENV_*
    current = describe(bank, ours)
    if run.settings.server_digest != current.digest:
        recorded = run.settings.server_rules
        parts = [part for part, now in current.rules.items() if recorded.get(part, now) != now]
        other = ", ".join(parts) or "rules, limits or SQLite"
        report.cause = f"the run's server had other {other} than this code"


def _compare_results(run: RunFolder, episodes: Sequence[EpisodeLine], report: Report) -> None:
    weights = run.settings.config.reward_weights
    finished = run.summary.exists()
    lines = list(run_files.numbered_lines(run.metrics)) if run.metrics.exists() else []
    rows = [(number, _object(line, run.metrics, number, report)) for number, line in lines]
    report.metrics_rows = len(rows)
    if all(row is not None for _, row in rows):
        for number, text in metrics_differences(rows, episodes, finished, weights):
            report.add(run.metrics, text, number)
    if finished:
        summary = _object(run_files.read_file(run.summary), run.summary, 0, report)
        if summary is not None:
            for text in summary_differences(summary, episodes):
                report.add(run.summary, text)
    elif (path := run.path / EVALUATION).exists():
        result = _object(run_files.read_file(path), path, 0, report)
        if result is not None:
            for text in evaluation_differences(result, episodes):
                report.add(path, text)
    else:
        report.notes.append(f"no {run.summary.name}: the run is not finished")


def _object(text: bytes, path: Path, number: int, report: Report) -> Any:
    """Return the JSON object of a line or a file; report anything else and return None."""
    try:
        value = json.loads(text)
    except ValueError as error:
        report.add(path, f"not JSON: {error}", number)
        return None
    if isinstance(value, dict) and text.endswith(b"\n"):
        return value
    report.add(path, "not a complete JSON object", number)
    return None


def _compare_files(run: RunFolder, report: Report) -> None:
    """Compare every file that SHA256SUMS lists; files that were added later are only noted."""
    if not run.checksums.exists():
        if run.summary.exists():
            report.add(run.checksums, "missing, though the run is finished")
        else:
            report.notes.append(f"no {CHECKSUMS}: files not derived from episodes are not compared")
        return
    try:
        listed = run_files.read_checksums(run_files.read_file(run.checksums))
    except LineError as error:
        report.add(run.checksums, str(error))
        return
    actual = run_files.checksums(run.path)
    report.files = len(actual.keys() & listed.keys())
    if later := sorted(actual.keys() - listed.keys()):
        report.notes.append(f"not compared, as {CHECKSUMS} does not list them: {', '.join(later)}")
    for name in listed:
        if name not in actual:
            report.problems.append(Problem(name, 0, f"missing, though {CHECKSUMS} lists it"))
        elif listed[name] != actual[name]:
            report.problems.append(Problem(name, 0, f"its SHA-256 differs from {CHECKSUMS}"))
