"""The report of a run, and of an evaluation, as one HTML file that requests nothing."""

import base64
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment

from shared import pages
from shared.actions import ActionType
from shared.console import counted
from shared.run_stats import MODES, counts
from trainer.config import REWARD_WEIGHTS
from trainer.errors import RunError
from trainer.evaluation.analysis import analyse
from trainer.evaluation.records import EvaluationFolder, read_episodes
from trainer.evaluation.tables import named, p_text
from trainer.report import tables
from trainer.report.groups import group_browser
from trainer.report.questions import kinds_of, policies_of, question_browser
from trainer.report.run_reader import Gap, read_if_there, read_questions, read_run
from trainer.run.charts import Chart, png
from trainer.run.console import seconds_text
from trainer.run.folder import read_json, to_json
from trainer.run.plots import rate_of
from trainer.run.records import Book, EpisodeRecord


def run_page(path: Path) -> tuple[str, Sequence[Gap]]:
    """Return the page of the run in a folder, and what it can't show.

    Raise `RunError` if the folder is not a run's.
    """
    run = read_run(path)
    templates, kinds = environment(), kinds_of(run)
    questions, question_count = question_browser(templates, policies_of(run), run.questions, kinds)
    groups, groups_shown = group_browser(templates, run)
    page = templates.get_template("report.html.j2").render(
        run=run,
        modes=MODES,
        rate_of=partial(rate_of, run.summaries),
        change=tables.change,
        rates=tables.rates(run),
        curves=tables.curves(run),
        ledger=tables.ledger(run),
        kinds=kinds,
        questions=questions,
        question_count=question_count,
        groups=groups,
        groups_shown=groups_shown,
        count_names=list(counts([])),
        settings={**run.config, **(run.settings.get("options") or {})},
    )
    return page, run.gaps


def evaluation_page(path: Path) -> tuple[str, list[Gap]]:
    """Return the page of the evaluation in a folder, and what it can't show.

    The numbers are computed from episodes.jsonl. Raise `RunError` if a line was changed.
    """
    folder = EvaluationFolder(path.resolve())
    settings = read_json(folder.config)
    asked: Mapping[str, Any] = settings["evaluation"]
    result = read_if_there(folder.result)
    episodes = read_episodes(folder.episodes)
    if not episodes:
        raise RunError(f"{path} has no episode yet: give the command of the evaluation again")
    split = str(asked.get("split", "eval"))
    questions, gaps = read_questions(settings, (split,))
    if not result:
        what = f"the evaluation is not finished: {len(episodes)} episodes are here"
        gaps.append(Gap(what, "give the same 'trainer evaluate' command again"))
    ks = [int(k) for k in result["success"]["overall"]["pass_at"]] if result else [1]
    found = analyse(episodes, ks, Book((), questions.values()).source_difficulties)
    own = ((f"source: {name}", one) for name, one in found["by_source_difficulty"].items())
    groups = [*named(found), *own, *found["by_database"].items()]
    played: dict[str, list[EpisodeRecord]] = {}
    for record in folder.records():
        played.setdefault(record.question_id, []).append(record)
    label = str(result.get("label") or asked.get("policy"))
    templates = environment()
    shown, question_count = question_browser(templates, {label: played}, questions, {})
    page = templates.get_template("evaluation.html.j2").render(
        name=folder.path.name,
        label=label,
        asked=asked,
        result=result,
        groups=[(name, one) for name, one in groups if one["episodes"]],
        ks=[str(k) for k in ks if k != 1],
        found=found,
        agreement=tables.agreement(found["overall"]),
        kinds=list(map(str, ActionType)),
        p_text=p_text,
        questions=shown,
        question_count=question_count,
        settings={**asked, **{k: v for k, v in settings["config"].items() if k not in asked}},
        gaps=gaps,
    )
    return page, gaps


def environment() -> Environment:
    """Return the templates with what both pages use."""
    # A run that is under way, or of another version, lacks some of what the template names.
    made = pages.environment("trainer.report", "report.css", "report.js", ChainableUndefined)
    made.filters |= {"secs": seconds_text, "plain": plain, "counted": counted, "picture": picture}
    made.globals |= {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "layers": REWARD_WEIGHTS,
    }
    return made


def picture(chart: Chart) -> str:
    """Return the chart as the address of an image; the page has its title and its note as text."""
    drawn = png([replace(chart, title="", note="")], dpi=150, inches=(5.6, 3.8))
    return f"data:image/png;base64,{base64.b64encode(drawn).decode()}"


def plain(value: Any) -> str:
    """Format a setting's value: lists with commas, None and empty lists as "none"."""
    if isinstance(value, Mapping | bool):
        return to_json(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
