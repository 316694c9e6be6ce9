"""Reads a run's folder for the report: finished or not, complete or damaged.

A folder without settings is not a run. Everything else that is missing or unreadable becomes a
`Gap`, which the page lists.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from shared.console import counted
from shared.dataset import Question, data_digest, load_questions
from shared.errors import SQLEnvError
from shared.models import Outcome
from shared.run_files import RunSummary
from shared.run_stats import MODES, PHASES
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult
from trainer.run.folder import Run, how_to_resume, open_run, read_json
from trainer.run.observations import read_observations

# counts of episodes.jsonl: name on the page -> field
COUNTS = {
    "context_overflows": "context_overflow",
    "context_truncations": "context_truncations",
    "env_errors": "env_errors",
    "inferred_actions": "inferred_actions",
    "episodes_too_large": "too_large",
    "parse_failures": "parse_failures",
}

Row = dict[str, Any]
# The episodes of a training step: question -> (reward, correct) of each that was not lost.
StepGroups = dict[str, list[tuple[float, bool]]]


@dataclass(frozen=True)
class Gap:
    """Something that the page can't show, and how to add it."""

    what: str
    remedy: str = ""


@dataclass(frozen=True)
class LoadedRun:
    """The contents of one run's folder. `summary` is empty until the run ends."""

    folder: Run
    settings: Mapping[str, Any]
    summary: RunSummary
    metrics: Sequence[Row]
    # phase -> mode -> a measurement of the whole eval set, with and without its episodes
    evaluations: Mapping[str, Mapping[str, EvalResult]]
    summaries: Mapping[str, Mapping[str, Mapping[str, Any]]]
    steps: Mapping[int, StepGroups]
    counts: Mapping[str, Mapping[str, int]]  # phase -> name -> number
    questions: Mapping[str, Question]  # by id, as far as they are available
    gaps: Sequence[Gap] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's `GRPOConfig`, by field name."""
        return self.settings["config"]  # type: ignore[no-any-return]

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def last_step(self) -> int:
        """The last training step; 0 if there was none."""
        logged = (int(row["step"]) for row in self.metrics if "loss" in row or "episodes" in row)
        return max([*logged, *self.steps], default=0)

    def question_text(self, question_id: str) -> str:
        """Return the question's text, or its id if the questions file is not available."""
        question = self.questions.get(question_id)
        return question.question_text if question else question_id


def read_run(path: Path, data: Path | None = None) -> LoadedRun:
    """Read a run's folder. `data` replaces the data directory in its settings.

    Raise `RunError` if the folder is not a run's, naming what it lacks.
    """
    folder = open_run(path)
    settings = read_json(folder.config)
    if not isinstance(settings, dict) or not isinstance(settings.get("config"), dict):
        raise RunError(f"{folder.config} does not hold a run's settings: no object named config")
    reader = Reader()
    summary = cast(RunSummary, reader.attempt(folder.summary, _read_object) or {})
    evaluations: dict[str, dict[str, EvalResult]] = defaultdict(dict)
    summaries: dict[str, dict[str, Any]] = defaultdict(dict, summary.get("evaluations") or {})
    for phase, mode in product(PHASES, MODES):
        result = reader.attempt(folder.evaluation(phase, mode), EvalResult.read)
        if result is not None:
            evaluations[phase][mode] = result
            summaries[phase].setdefault(mode, result.summary())
    steps, counts = _episodes(folder, reader)
    run = LoadedRun(
        folder=folder,
        settings=settings,
        summary=summary,
        metrics=list(reader.lines(folder.metrics)),
        evaluations=dict(evaluations),
        summaries=dict(summaries),
        steps=steps,
        counts=counts,
        questions=read_questions(settings, data, reader),
    )
    return replace(run, gaps=[*_missing(run), *reader.gaps])


def training_lines(folder: Run, steps: set[int]) -> dict[int, list[Row]]:
    """Return step -> the episodes.jsonl lines it trained on, in the generation batch's order.

    A line whose observations were kept has them as `seen`.
    """
    lines: dict[int, list[Row]] = defaultdict(list)
    for row in Reader().lines(folder.episodes):
        if row.get("phase") == "train" and row["step"] in steps:
            lines[row["step"]].append(row)
    seen: dict[int, list[Row]] = defaultdict(list)
    for kept in read_observations(folder.observations):
        if kept["step"] in steps:
            seen[kept["step"]].append(kept)
    for step, rows in lines.items():
        for row, kept in zip(rows, seen[step], strict=False):
            if kept["question_id"] == row.get("question_id"):
                row["seen"] = kept["observations"]
    return dict(lines)


@dataclass
class Reader:
    """Reads files that may be missing or damaged, and collects what could not be read."""

    gaps: list[Gap] = field(default_factory=list)

    def lines(self, path: Path) -> Iterator[Row]:
        """Yield the objects of a JSON lines file; other lines, or a cut one, become a gap."""
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
            self.gaps.append(Gap(f"{counted(bad, 'line')} of {path.name} can't be read"))

    def attempt(self, path: Path, read: Callable[[Path], Any]) -> Any:
        """Return `read(path)`, or None for a file that is missing or, as a gap, unreadable."""
        if not path.exists():
            return None
        try:
            return read(path)
        except SQLEnvError as error:
            reason = error.message
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
        self.gaps.append(Gap(f"{path.name} can't be read: {reason}"))
        return None


def _read_object(path: Path) -> Row:
    content = read_json(path)
    if not isinstance(content, dict):
        raise RunError(f"{path} does not hold a JSON object")
    return content


def _episodes(folder: Run, reader: Reader) -> tuple[dict[int, StepGroups], dict[str, Counter[str]]]:
    """Read episodes.jsonl into the training steps and counts by phase."""
    steps: dict[int, StepGroups] = defaultdict(dict)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in reader.lines(folder.episodes):
        phase = str(row.get("phase"))
        counts[phase]["episodes"] += 1
        counts[phase]["episodes_lost"] += row.get("outcome") == Outcome.INFRA_FAILED
        for name, key in COUNTS.items():
            counts[phase][name] += int(row.get(key) or 0)
        if phase == "train":
            groups = steps[int(row["step"])]
            if (reward := row.get("reward")) is not None:
                group = groups.setdefault(str(row.get("question_id")), [])
                group.append((reward, row.get("outcome") == Outcome.CORRECT))
    return dict(steps), dict(counts)


def read_questions(
    settings: Mapping[str, Any],
    data: Path | None,
    reader: Reader,
    splits: Sequence[str] = ("train", "eval"),
) -> dict[str, Question]:
    """Return the questions of the run's data directory by id, as far as they are available."""
    remedy = "name the directory of the run's data with --data"
    train = Path(str(settings["config"].get("questions_path", "")))
    if data is not None:
        train = data / "questions" / "questions_train.json"
    if not train.name:
        return {}
    questions: dict[str, Question] = {}
    for path in (train.with_name(f"questions_{split}.json") for split in splits):
        try:
            questions |= {question.question_id: question for question in load_questions(path)}
        except SQLEnvError as error:
            reason = error.message.split("; ")[0]
            reader.gaps.append(Gap(f"questions are shown by their ids: {reason}", remedy))
            return questions
    expected = settings.get("data_digest")
    if expected and data_digest(train.parent.parent) != expected:
        what = (
            f"{train.parent.parent} is no longer the data that the run used (its digest differs): "
            "texts and gold answers of questions may differ from the run's"
        )
        reader.gaps.append(Gap(what, remedy))
    return questions


def _missing(run: LoadedRun) -> Iterator[Gap]:
    """Yield what a finished run has and this one lacks."""
    folder = run.folder
    if not run.finished:
        steps = f"{run.last_step} of {run.config.get('max_steps', '?')}"
        yield Gap(
            f"the run has no {folder.summary.name}: it is running or was stopped, after step "
            f"{steps}; rates and counts are those so far",
            how_to_resume(folder.path, run.settings),
        )
    if not run.last_step:
        yield Gap(f"no training step in {folder.metrics.name}: there are no training curves")
    if not run.steps:
        yield Gap(f"no training episode in {folder.episodes.name}: there are no groups to show")
    absent = [phase for phase in PHASES if phase not in run.summaries]
    if absent:
        yield Gap(f"no evaluation of the whole eval set: {', '.join(absent)}")
    if run.last_step and not any("eval_n" in row for row in run.metrics):
        yield Gap("no point of the eval curve", "train with --eval-every above 0")
