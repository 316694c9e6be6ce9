"""Success before and after training by form of question: forms.md and forms.json.

A form is a template of `data/domains/templates/`. Beside the forms: the questions whose pair of a
form and a word pretraining never saw, and the hard questions, which no template makes. The run did
not play the hard ones; they are measured here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.learning.bench import (
    Bench,
    Finished,
    Result,
    kept,
    load_finished,
    measure_both,
    opened,
)
from benchmarks.learning.report import markdown_table, percent, wrapped
from data.build import shipped_forms
from data.domains.held_out import is_held_out_pair
from shared.run_stats import MODES, PlayedEpisode, RateSummary, success
from shared.shipped import shipped_path
from trainer.errors import RunError
from trainer.evaluation.evaluate import EvalResult
from trainer.rollout.dataset import load_question_prompts
from trainer.run.folder import Run, read_json
from trainer.runtime.models import load_model_and_tokenizer

FOLDER = "forms"  # of the run, for the measurements of hard questions
START, END = "before", "after"
HARD = "hard"
Question = Mapping[str, Any]  # a row of a questions file, with its form
Played = Mapping[tuple[str, str], Sequence[PlayedEpisode]]  # by phase and mode


@dataclass(frozen=True)
class Line:
    """Success on some of the questions; `rates` by phase and mode."""

    name: str
    difficulty: str
    n: int
    rates: Mapping[str, Mapping[str, RateSummary]]


@dataclass(frozen=True)
class Forms:
    """A run's success by form, and on sets of questions that cross the forms."""

    finished: Finished
    forms: Sequence[Line]
    sets: Sequence[Line]


def run_forms(path: Path, console: Console) -> Forms:
    """Measure the hard questions that have no stored result, and group the run's own episodes.

    Raises `RunError` if the run, its data, its model or the server have changed since.
    """
    finished = load_finished(path)
    questions = eval_questions(Path(finished.config.questions_path))
    forms, sets = grouped(questions, _episodes(finished.run.evaluation))
    if hard := [one for one in questions if one["difficulty"] == HARD]:
        folder = finished.run.path / FOLDER
        models = {START: Path(finished.config.model_name), END: finished.run.model}
        of = {"digests": finished.digests, "settings": {"questions": len(hard)}}
        with opened(finished, folder, console) as bench:
            for phase, model in models.items():
                kept(folder, phase, of, partial(measure_hard, bench, model))
        played = _episodes(lambda phase, mode: Run(folder / phase).evaluation(END, mode))
        sets.append(line(HARD, hard, played))
    return Forms(finished, forms, sets)


def measure_hard(bench: Bench, model: Path, folder: Run) -> Result:
    """Play every hard eval question with a model, greedy and sampled."""
    config = bench.connection.config.override(model_name=str(model))
    rows = load_question_prompts(config.override(difficulty_filter=[HARD]), "eval")
    bench = replace(bench, inputs=replace(bench.inputs, evaluation=rows))
    started, title = time.process_time(), f"hard questions, {folder.id}"
    modes = measure_both(bench, folder, title, *load_model_and_tokenizer(config))
    return Result({HARD: modes}, time.process_time() - started, {})


def eval_questions(train_path: Path) -> list[Question]:
    """Return the eval questions beside a file of training questions, each with its form.

    Raises `RunError` for questions that neither ship nor were generated: they have none.
    """
    path = shipped_path(train_path.with_name("questions_eval.json"))
    rows: list[dict[str, Any]] = read_json(path)
    forms = {} if all("form" in row for row in rows) else shipped_forms()
    for row in rows:
        row.setdefault("form", forms.get(row["question_id"]))
        if row["form"] is None:
            raise RunError(f"{path}: {row['question_id']} is of no template, so it has no form")
    return list(rows)


def grouped(questions: Iterable[Question], played: Played) -> tuple[list[Line], list[Line]]:
    """Return a line per form of the played questions, and the lines of all and of held-out pairs.

    Forms are sorted by difficulty and name; hard questions have none.
    """
    ids = {one.question_id for episodes in played.values() for one in episodes}
    asked = [one for one in questions if one["question_id"] in ids and one["difficulty"] != HARD]
    by_form: dict[tuple[str, str], list[Question]] = defaultdict(list)
    for one in asked:
        by_form[one["difficulty"], one["form"]].append(one)
    forms = [line(form, rows, played) for (_, form), rows in sorted(by_form.items())]
    pairs = [one for one in asked if is_held_out_pair(one["form"], one["question_text"])]
    return forms, [line("all forms", asked, played), line("held-out pairs", pairs, played)]


def line(name: str, questions: Sequence[Question], played: Played) -> Line:
    """Return the success on some of the questions, over the finished episodes."""
    ids = {one["question_id"] for one in questions}
    rates: dict[str, dict[str, RateSummary]] = {START: {}, END: {}}
    for (phase, mode), episodes in played.items():
        chosen = [one for one in episodes if one.question_id in ids]
        rates[phase][mode] = success(chosen).as_dict()
    levels = sorted({str(one["difficulty"]) for one in questions})
    return Line(name, " and ".join(levels), len(ids), rates)


def _episodes(path_of: Callable[[str, str], Path]) -> Played:
    keys = [(phase, mode) for phase in (START, END) for mode in MODES]
    return {key: EvalResult.read(path_of(*key)).episodes for key in keys}


def table(first: str, lines: Sequence[Line]) -> str:
    places = [(mode, phase) for mode in MODES for phase in (START, END)]
    rows = [
        [one.name, one.difficulty, str(one.n)]
        + [percent(one.rates[phase][mode]) for mode, phase in places]
        for one in lines
    ]
    headings = [f"{mode}, {phase}" for mode, phase in places]
    return markdown_table([first, "difficulty", "n", *headings], rows)


def page(found: Forms, command: str) -> str:
    """Return forms.md."""
    finished = found.finished
    head = wrapped(
        f"Run {finished.run.id}: {finished.steps} GRPO steps, seed {finished.config.seed}. Success "
        "in % on the eval questions of each form, seen and unseen databases together, with 95 % "
        "Wilson intervals."
    )
    sets = wrapped(
        "Held-out pairs are the questions whose form and word pretraining never saw together. "
        "Hard questions are written by hand: no template makes them, so no demonstration is like "
        "them."
    )
    return (
        f"# Success by form of question\n\n{head}\n\n    {command}\n\n"
        f"{table('form', found.forms)}\n{sets}\n\n{table('questions', found.sets)}"
    )


def as_json(found: Forms, command: str) -> dict[str, Any]:
    """Return forms.json."""
    return {
        "command": command,
        "run": found.finished.run.id,
        "digests": found.finished.digests,
        "forms": [asdict(one) for one in found.forms],
        "sets": [asdict(one) for one in found.sets],
    }
