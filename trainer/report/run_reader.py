"""Reads a run's folder for the report; what is missing becomes a `Gap`, which the page lists."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from shared.dataset import AnyQuestion, data_digest, load_split
from shared.errors import SQLEnvError
from shared.run_files import RunSummary
from shared.run_stats import MODES, PHASES
from trainer.errors import RunError
from trainer.run.console import Summaries
from trainer.run.folder import Run, how_to_resume, open_run, read_json, read_lines
from trainer.run.measurement import EvalResult, Results, summaries_of
from trainer.run.records import EpisodeRecord, read_records
from trainer.run.summary import totals

Row = dict[str, Any]


class Gap(NamedTuple):
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
    evaluations: Results
    summaries: Summaries
    steps: Sequence[int]  # those of training with episodes
    totals: Mapping[str, Any]  # `trainer.run.summary.totals`
    questions: Mapping[str, AnyQuestion]  # by id, as far as they are available
    gaps: Sequence[Gap] = ()

    @property
    def config(self) -> Mapping[str, Any]:
        return self.settings["config"]  # type: ignore[no-any-return]

    @property
    def finished(self) -> bool:
        return bool(self.summary)

    @property
    def last_step(self) -> int:
        logged = (int(row["step"]) for row in self.metrics if "loss" in row or "episodes" in row)
        return max([*logged, *self.steps], default=0)

    def question_text(self, question_id: str) -> str:
        question = self.questions.get(question_id)
        return question.question_text if question else question_id


def read_run(path: Path) -> LoadedRun:
    folder = open_run(path)
    settings = read_json(folder.config)
    if not isinstance(settings, dict) or not isinstance(settings.get("config"), dict):
        raise RunError(f"{folder.config} does not hold a run's settings: no object named config")
    played: dict[str, dict[str, list[EpisodeRecord]]] = {}
    measured = read_records(folder, lambda phase, step: phase in PHASES)
    for one in sorted(measured, key=lambda one: one.key):  # not by when they ended
        played.setdefault(one.phase, {}).setdefault(one.mode, []).append(one)
    evaluations: Results = {
        phase: {mode: EvalResult(tuple(modes[mode])) for mode in MODES if mode in modes}
        for phase in PHASES
        if (modes := played.get(phase))
    }
    questions, gaps = read_questions(settings)
    trained = read_records(folder, lambda phase, step: phase == "train", seen=False)
    run = LoadedRun(
        folder=folder,
        settings=settings,
        summary=cast(RunSummary, read_if_there(folder.summary)),
        metrics=list(read_lines(folder.metrics)),
        evaluations=evaluations,
        summaries=summaries_of(evaluations),
        steps=sorted({one.step for one in trained}),
        totals=totals(folder),
        questions=questions,
    )
    return replace(run, gaps=[*_missing(run), *gaps])


def read_if_there(path: Path) -> Row:
    return dict(read_json(path)) if path.exists() else {}


def training_episodes(folder: Run, steps: set[int]) -> dict[int, dict[str, list[EpisodeRecord]]]:
    """Return the groups of some steps: step -> question -> episodes."""
    found: dict[int, dict[str, list[EpisodeRecord]]] = {step: defaultdict(list) for step in steps}
    for one in read_records(folder, lambda phase, step: phase == "train" and step in steps):
        found[one.step][one.question_id].append(one)
    return found


def read_questions(
    settings: Mapping[str, Any], splits: Sequence[str] = ("train", "eval")
) -> tuple[dict[str, AnyQuestion], list[Gap]]:
    train = Path(settings["config"]["questions_path"])
    questions: dict[str, AnyQuestion] = {}
    try:
        for split in splits:
            loaded = load_split(train, split)
            questions |= {question.question_id: question for question in loaded}
    except SQLEnvError as error:
        reason = error.message.split("; ")[0]
        return questions, [Gap(f"questions are shown by their ids: {reason}")]
    expected = settings.get("data_digest")
    if expected and data_digest(train.parent.parent) != expected:
        what = (
            f"{train.parent.parent} is no longer the data that the run used (its digest differs): "
            "texts and gold answers of questions may differ from the run's"
        )
        return questions, [Gap(what)]
    return questions, []


def _missing(run: LoadedRun) -> Iterator[Gap]:
    if not run.finished:
        steps = f"{run.last_step} of {run.config.get('max_steps', '?')}"
        yield Gap(
            f"the run has no {run.folder.summary.name}: it is running or was stopped, after step "
            f"{steps}; rates and counts are those so far",
            how_to_resume(run.folder.path, run.settings),
        )
    if absent := [phase for phase in PHASES if phase not in run.summaries]:
        yield Gap(f"no evaluation of the whole eval set: {', '.join(absent)}")
