"""Audit a run: play every recorded episode again and compare everything that follows, byte by byte.

Compared are each line of episodes.jsonl with its digest; each observation and reward with the
replay's; the verdict, the three reward layers and their sum; the question's database, difficulty
and part; then metrics.jsonl and summary.json with the episodes, and the files with SHA256SUMS.

Not compared: that the tokens were sampled from the named model, losses and gradients, times, and
how an invalid text became an action (only that this action was sent to the environment).
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env_server.audit.recompute import metrics_differences, summary_differences
from env_server.audit.replay import (
    NumberedLine,
    Progress,
    RunFolder,
    read_lines,
    read_metrics,
    read_summary,
    replay,
)
from env_server.questions import QuestionBank
from env_server.rewards import REWARD_VERSION, RULES
from env_server.service import describe
from env_server.settings import Settings
from env_server.sql.pool import SqlPool
from shared.errors import DataError, SQLEnvError
from shared.models import Outcome, StepResult
from shared.run_files import (
    CHECKSUMS,
    EVALUATION,
    EpisodeLine,
    LineError,
    checksums,
    observation_digest,
    read_checksums,
)

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
    """What an audit compared, and the problems it found.

    `phases` counts episodes, correct ones, observations and rewards by (phase, mode).
    """

    run: str
    phases: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    metrics_rows: int = 0
    files: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def episodes(self) -> int:
        return sum(counts["episodes"] for counts in self.phases.values())

    def as_json(self) -> dict[str, Any]:
        phases = [{"phase": p, "mode": m, **counts} for (p, m), counts in self.phases.items()]
        problems = [vars(problem) for problem in self.problems]
        fields = {**vars(self), "phases": phases, "problems": problems}
        return {**fields, "passed": self.passed, "wall_s": round(self.wall_s, 3)}


async def verify_run(
    path: Path,
    *,
    data_dir: Path | None = None,
    workers: int = 2,
    sql: SqlPool | None = None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Audit the run in `path`, with its SQL on `workers` new processes, or on `sql`.

    Raises `DataError` if there is no run or no data, `DigestMismatch` for different data.
    """
    start = time.monotonic()
    run = RunFolder.open(path)
    bank = run.bank(data_dir)
    report = Report(str(path))
    _check_versions(run, bank, report)
    lines = list(_read_lines(run, report))
    unread, train_databases = len(report.problems), run.train_databases(bank)
    if not lines and not unread:
        raise DataError(f"{run.episodes} has no episodes yet: nothing to verify")
    async with nullcontext(sql) if sql else SqlPool(workers, bank.limits) as running:
        async for number, episode, replies in replay(run, bank, running, lines):
            if isinstance(replies, SQLEnvError):
                differences: Sequence[str] = [f"can't be replayed: {replies.message}"]
            else:
                differences = list(episode_differences(episode, replies, bank, train_databases))
            report.problems += [Problem(run.episodes.name, number, text) for text in differences]
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
        _compare_results(run, [episode for _, episode in lines], report)
    _compare_files(run, report)
    report.problems.sort(key=lambda problem: (problem.file, problem.line))
    report.wall_s = time.monotonic() - start
    return report


def episode_differences(
    recorded: EpisodeLine, replies: Replies, bank: QuestionBank, train_databases: frozenset[str]
) -> Iterator[str]:
    """Yield where a recorded episode differs from its replay; `replies` start with the reset's."""
    if len(recorded.rewards) != len(recorded.actions):
        yield f"{len(recorded.actions)} actions, but {len(recorded.rewards)} rewards"
    if recorded.parts is not None and len(recorded.parts) != len(recorded.actions):
        yield f"{len(recorded.actions)} actions, but parts of {len(recorded.parts)} rewards"
    if recorded.lost and not recorded.observations:
        replies = []  # not even its reset was answered
    elif len(recorded.observations) != len(replies):
        yield f"{len(recorded.actions)} actions, but {len(recorded.observations)} observations"
    for step, (digest, reply) in enumerate(zip(recorded.observations, replies, strict=False)):
        if digest != (replayed := observation_digest(reply.observation)):
            yield f"step {step}: observation: recorded {digest}, replayed {replayed}"
    steps = replies[1:]
    for step, (reward, reply) in enumerate(zip(recorded.rewards, steps, strict=False), 1):
        if reward != reply.reward:
            yield f"step {step}: reward: recorded {reward!r}, replayed {reply.reward!r}"
    for step, (parts, reply) in enumerate(zip(recorded.parts or (), steps, strict=False), 1):
        if parts != (paid := reply.ledger.step):
            yield f"step {step}: parts of the reward: recorded {parts}, replayed {paid}"
    for name, value in _expected(recorded, replies, bank, train_databases).items():
        if (written := getattr(recorded, name)) != value:
            was, now = (str(v) if isinstance(v, Outcome) else v for v in (written, value))
            yield f"{name}: recorded {was!r}, replayed {now!r}"
    yield from _text_differences(recorded)


def _expected(
    recorded: EpisodeLine, replies: Replies, bank: QuestionBank, train_databases: frozenset[str]
) -> dict[str, Any]:
    """Return the fields of a line that follow from the question and the replies."""
    question = bank.with_gold(recorded.question_id)
    ledger = replies[-1].ledger if replies and not recorded.lost else None
    if replies and replies[-1].done:
        outcome = replies[-1].info.outcome or Outcome.BUDGET
    else:  # the driver abandoned an episode that has not ended
        outcome = Outcome.INFRA_FAILED if recorded.lost else Outcome.ABANDONED
    return {
        "database": question.database_name,
        "difficulty": question.difficulty,
        "part": "seen" if question.database_name in train_databases else "unseen",
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


def _read_lines(run: RunFolder, report: Report) -> Iterator[NumberedLine]:
    """Yield the episodes of the run's lines; report a damaged line as a problem."""
    try:
        for number, episode in read_lines(run.episodes):
            if isinstance(episode, LineError):
                report.problems.append(Problem(run.episodes.name, number, str(episode)))
            else:
                yield number, episode
    except OSError as error:
        raise DataError(f"can't read {run.episodes}: {error.strerror}") from error


def _check_versions(run: RunFolder, bank: QuestionBank, report: Report) -> None:
    written = run.settings.reward_version
    if written != REWARD_VERSION:
        difference = f"{run.path} has reward version {written!r}, this code {REWARD_VERSION!r}"
        raise DataError(f"{difference}: verify it with the code that made it, or use rescore")
    ours = Settings.model_construct(standard=run.settings.config.standard)  # ignores SQLENV_*
    if run.settings.server_digest != describe(bank, ours).digest:
        difference = "the run's server had other rules, limits or SQLite than this code"
        report.notes.append(f"{difference}; the replay shows whether that matters")


def _compare_results(run: RunFolder, episodes: Sequence[EpisodeLine], report: Report) -> None:
    try:
        finished = run.summary.exists()
        rows = read_metrics(run.metrics) if run.metrics.exists() else []
        report.metrics_rows = len(rows)
        for number, text in metrics_differences(rows, episodes, finished):
            report.problems.append(Problem(run.metrics.name, number, text))
        if finished:
            for text in summary_differences(read_summary(run.summary), episodes):
                report.problems.append(Problem(run.summary.name, 0, text))
        elif (run.path / EVALUATION).exists():
            report.notes.append(f"{EVALUATION} is not checked")
        else:
            report.notes.append(f"no {run.summary.name}: the run is not finished")
    except DataError as error:
        report.problems.append(Problem(error.details["file"], error.details["line"], error.message))
    except OSError as error:
        raise DataError(f"can't read {error.filename}: {error.strerror}") from error


def _compare_files(run: RunFolder, report: Report) -> None:
    """Compare every file that SHA256SUMS lists; files that were added later are only noted."""
    try:
        listed = read_checksums(run.checksums.read_bytes())
    except FileNotFoundError:
        if run.summary.exists():
            report.problems.append(Problem(CHECKSUMS, 0, "missing, though the run is finished"))
        else:
            report.notes.append(f"no {CHECKSUMS}: files not derived from episodes are not compared")
        return
    except (OSError, ValueError) as error:
        report.problems.append(Problem(CHECKSUMS, 0, str(error)))
        return
    actual = checksums(run.path)
    report.files = len(actual.keys() & listed.keys())
    if later := sorted(actual.keys() - listed.keys()):
        names = ", ".join(later[:3]) + (", ..." if len(later) > 3 else "")
        report.notes.append(f"not compared, as {CHECKSUMS} does not list them: {names}")
    for name in sorted(listed):
        if name not in actual:
            report.problems.append(Problem(name, 0, f"missing, though {CHECKSUMS} lists it"))
        elif listed[name] != actual[name]:
            report.problems.append(Problem(name, 0, f"its SHA-256 differs from {CHECKSUMS}"))
