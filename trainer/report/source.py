"""What a run's folder says, read once: finished or not, whole or damaged. What is not there is
named, never guessed.

Only a folder that holds no settings is no run. Everything else that is missing or unreadable
becomes a `Gap`, which the page shows.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.dataset import Question, data_digest, load_questions
from shared.errors import SQLEnvError
from shared.models import Outcome
from shared.run_stats import MODES, PHASES, Rate
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult
from trainer.run.folder import Run, read_json

# Of a line of episodes.jsonl, what is a number and no count. Every other number of a line is one,
# and is added up.
MEASURES = frozenset({"step", "steps", "correctness", "progress", "operational", "reward"})
# a line's field -> summary.json's name for the count
NAMES = {"context_overflow": "context_overflows"}
CONTROLS = "controls"  # the folder in which benchmarks.learning keeps a run's controls

Row = dict[str, Any]


@dataclass(frozen=True)
class Gap:
    """Something that the page can't show: what is missing, and what mends it."""

    what: str
    remedy: str = ""


@dataclass(frozen=True)
class Record:
    """One run as its files have it. `summary` is empty before its end; `questions` are by id, as
    far as they are here.

    `evaluations` and `summaries` are phase -> mode -> a measurement of the whole eval set, with and
    without episodes. `small` is (step, mode) -> success on the questions of the eval curve,
    `batches` step -> what was trained on, `counts` phase -> name -> number.
    """

    run: Run
    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    metrics: Sequence[Row]
    evaluations: Mapping[str, Mapping[str, EvalResult]]
    summaries: Mapping[str, Mapping[str, Mapping[str, Any]]]
    small: Mapping[tuple[int, str], Rate]
    batches: Mapping[int, "Batch"]
    counts: Mapping[str, Mapping[str, int]]
    controls: Mapping[str, Mapping[str, Any]]
    questions: Mapping[str, Question]
    gaps: Sequence[Gap] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's `GRPOConfig`, by field name."""
        found = self.settings.get("config")
        return found if isinstance(found, dict) else {}

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def last_step(self) -> int:
        """The last step that was trained; 0 where none was."""
        logged = (int(row["step"]) for row in self.metrics if "loss" in row or "episodes" in row)
        return max([*logged, *self.batches], default=0)

    def text(self, question_id: str) -> str:
        """The question's words, or its id where the questions file isn't here."""
        question = self.questions.get(question_id)
        return question.question_text if question else question_id


@dataclass
class Batch:
    """What one training step learned from: its episodes, and question -> (least, greatest reward,
    right, all)."""

    episodes: int = 0
    questions: dict[str, tuple[float, float, int, int]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Count one line of episodes.jsonl in; an episode that was lost says nothing of its
        question."""
        self.episodes += 1
        reward = row.get("reward")
        if reward is None:
            return
        low, high, right, n = self.questions.get(
            str(row.get("question_id")), (reward, reward, 0, 0)
        )
        right += row.get("outcome") == Outcome.CORRECT
        self.questions[str(row.get("question_id"))] = (
            min(low, reward),
            max(high, reward),
            right,
            n + 1,
        )

    def share(self, of: Callable[[float, float, int, int], bool]) -> float:
        """The share of the questions of which `of` holds."""
        return (
            sum(of(*one) for one in self.questions.values()) / len(self.questions)
            if self.questions
            else 0.0
        )


@dataclass
class _Reading:
    """A reading under way: the gaps found so far."""

    gaps: list[Gap] = field(default_factory=list)

    def lines(self, path: Path) -> Iterator[Row]:
        """The objects of a JSON lines file. Lines that hold none are counted, and so is a last one
        cut short."""
        if not path.exists():
            return
        bad = 0
        with path.open("rb") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
                if isinstance(row, dict) and "step" in row:
                    yield row
                else:
                    bad += 1
        if bad:
            self.gaps.append(
                Gap(f"{bad} {'line' if bad == 1 else 'lines'} of {path.name} can't be read")
            )

    def attempt(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """What `read` makes of a file, None where there is none; a file that it can't read is a
        gap."""
        if not path.exists():
            return None
        try:
            return read(path)
        except (SQLEnvError, ValueError, KeyError, TypeError, AttributeError) as error:
            said = (
                error.message
                if isinstance(error, SQLEnvError)
                else f"{type(error).__name__}: {error}"
            )
            self.gaps.append(Gap(f"{path.name} can't be read: {said}"))
            return None


def read_run(path: Path, data: Path | None = None) -> Record:
    """The run in a folder. `data`: its data directory, where that is not the one in its settings.

    `RunError` where the folder is no run's, naming what it lacks.
    """
    run = Run(path.resolve())
    if not run.path.is_dir():
        raise RunError(f"no run at {path}: name the folder that training left, such as runs/latest")
    if not run.config.is_file():
        raise RunError(
            f"{path} is not a run: it has no {run.config.name}; name a folder such as runs/latest"
        )
    settings = read_json(run.config)
    if not isinstance(settings, dict) or not isinstance(settings.get("config"), dict):
        raise RunError(f"{run.config} is not a run's settings: it has no object named config")
    reading = _Reading()
    summary = reading.attempt(run.summary, _read_object) or {}
    metrics = list(reading.lines(run.metrics))
    evaluations = _evaluations(run, reading)
    summaries = {
        phase: dict(modes)
        for phase, modes in (summary.get("evaluations") or {}).items()
        if isinstance(modes, dict)
    }
    for phase, found in evaluations.items():
        for mode, result in found.items():
            summaries.setdefault(phase, {}).setdefault(mode, result.summary())
    small, batches, counts = _episodes(run, reading)
    record = Record(
        run=run,
        settings=settings,
        summary=summary,
        metrics=metrics,
        evaluations=evaluations,
        summaries=summaries,
        small=small,
        batches=batches,
        counts=counts,
        controls=_controls(run, summary, reading),
        questions=_questions(settings, data, reading),
    )
    return Record(**{**record.__dict__, "gaps": [*_missing(record), *reading.gaps]})


def training_lines(run: Run, steps: set[int]) -> dict[int, list[Row]]:
    """Step -> the lines of the episodes that it trained on, in the order of the generation batch."""
    found: dict[int, list[Row]] = defaultdict(list)
    for row in _Reading().lines(run.episodes):
        if row.get("phase") == "train" and row["step"] in steps:
            found[row["step"]].append(row)
    return dict(found)


def _read_object(path: Path) -> Row:
    found = read_json(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} holds no object")
    return found


def _evaluations(run: Run, reading: _Reading) -> dict[str, dict[str, EvalResult]]:
    found: dict[str, dict[str, EvalResult]] = {}
    for phase in PHASES:
        for mode in MODES:
            result = reading.attempt(run.evaluation(phase, mode), EvalResult.read)
            if result is not None:
                found.setdefault(phase, {})[mode] = result
    return found


def _episodes(
    run: Run, reading: _Reading
) -> tuple[dict[tuple[int, str], Rate], dict[int, Batch], dict[str, dict[str, int]]]:
    """Success of the eval curve's points, what each training step learned from, and the counts by
    phase."""
    right: Counter[tuple[int, str]] = Counter()
    played: Counter[tuple[int, str]] = Counter()
    batches: dict[int, Batch] = defaultdict(Batch)
    counts: dict[str, Counter[str]] = {}
    for row in reading.lines(run.episodes):
        phase, outcome = str(row.get("phase")), row.get("outcome")
        counter = counts.setdefault(phase, Counter())
        counter["episodes"] += 1
        counter["episodes_lost"] += outcome == Outcome.INFRA_FAILED
        for name, value in row.items():
            if isinstance(value, int) and name not in MEASURES:
                counter[NAMES.get(name, name)] += value
        if phase == "train":
            batches[int(row["step"])].add(row)
        elif phase == "eval" and outcome != Outcome.INFRA_FAILED:
            place = (int(row["step"]), str(row.get("mode")))
            played[place] += 1
            right[place] += outcome == Outcome.CORRECT
    small = {place: Rate(right[place], n) for place, n in played.items()}
    return small, dict(batches), {phase: dict(counter) for phase, counter in counts.items()}


def _controls(run: Run, summary: Mapping[str, Any], reading: _Reading) -> dict[str, Row]:
    """Name -> what benchmarks.learning kept of a control. One of another model or other data is a
    gap."""
    found: dict[str, Row] = {}
    for path in sorted((run.path / CONTROLS).glob("*.json")):
        kept = reading.attempt(path, _read_object)
        if kept is None or not isinstance(kept.get("policies"), dict):
            continue
        if kept.get("of", {}).get("digests") != summary.get("digests"):
            reading.gaps.append(
                Gap(
                    f"the control {path.stem} was measured for other weights or data than the run has by now",
                    f"python -m benchmarks.learning controls --run {run.path} --only {path.stem}",
                )
            )
            continue
        found[path.stem] = kept
    return found


def _questions(
    settings: Mapping[str, Any], data: Path | None, reading: _Reading
) -> dict[str, Question]:
    """Every question of the run's data directory, by id, as far as it is here."""
    train = Path(str(settings["config"].get("questions_path", "")))
    if data is not None:
        train = data / "questions" / "questions_train.json"
    found: dict[str, Question] = {}
    for path in (train, train.with_name("questions_eval.json")) if train.name else ():
        try:
            found |= {question.question_id: question for question in load_questions(path)}
        except SQLEnvError as error:
            remedy = "give the directory of the run's data with --data"
            reading.gaps.append(
                Gap(f"questions are shown by their ids: {error.message.split('; ')[0]}", remedy)
            )
            return found
    played = settings.get("data_digest")
    if found and played and data_digest(train.parent.parent) != played:
        reading.gaps.append(
            Gap(
                f"the questions are read from {train.parent.parent}, which is no longer the data that the run played "
                "(its digest differs): a question's words and gold may not be those of the run",
                "give the directory of the run's data with --data",
            )
        )
    return found


def _missing(record: Record) -> Iterator[Gap]:
    """What a finished run has and this one lacks."""
    run, steps = record.run, record.config.get("max_steps", "?")
    if not record.finished:
        yield Gap(
            f"the run has no {run.summary.name}: it is under way or was stopped, after step {record.last_step} of "
            f"{steps}; rates and counts are those so far",
            f"python -m trainer train --resume {run.path}",
        )
    if not record.last_step:
        yield Gap(f"no training step in {run.metrics.name}: there are no curves of training")
    if not record.batches:
        yield Gap(f"no training episode in {run.episodes.name}: there are no groups to show")
    absent = [phase for phase in PHASES if phase not in record.summaries]
    if absent:
        yield Gap(f"no evaluation of the whole eval set: {', '.join(absent)}")
    if record.last_step and not any("eval_n" in row for row in record.metrics):
        yield Gap("no point of the eval curve", "train with --eval-every above 0")
