"""The report of a run, and of an evaluation, as one HTML file that requests nothing."""

import base64
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment
from rich.console import Console

from shared import pages
from shared.actions import ActionType
from shared.console import counted, print_line
from shared.run_stats import MODES, counts
from trainer.charts import Chart, png, rate_of
from trainer.config.settings import REWARD_WEIGHTS
from trainer.errors import RunError
from trainer.report import run_tables as tables
from trainer.report.browser import kinds_of, policies_of, question_browser
from trainer.report.groups import group_browser
from trainer.report.run_reader import Gap, read_if_there, read_questions, read_run
from trainer.run.analysis import analyse
from trainer.run.console import seconds_text
from trainer.run.folder import Run, read_json, to_json, write_text
from trainer.run.printed_tables import named, p_text
from trainer.run.records import Book, EpisodeRecord, read_records

log = logging.getLogger(__name__)


def run_page(path: Path) -> tuple[str, Sequence[Gap]]:
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
        layers=tables.weights_of(run.config),
        kinds=kinds,
        questions=questions,
        question_count=question_count,
        groups=groups,
        groups_shown=groups_shown,
        count_names=list(counts([])),
        settings={**run.config, **(run.settings.get("options") or {})},
    )
    return page, run.gaps


def draw_report(run: Run, console: Console) -> None:
    """Write the page of a run that has ended; log a failure, as the page can be drawn again."""
    try:
        write_text(run.report, run_page(run.path)[0])
        print_line(console, f"{'report':12} {run.report}")
    except Exception:
        log.exception("no report was drawn; try again: python -m trainer report %s", run.path)


def evaluation_page(path: Path) -> tuple[str, list[Gap]]:
    folder = Run(path.resolve())
    settings = read_json(folder.config)
    asked: Mapping[str, Any] = settings["evaluation"]
    result, samples = read_if_there(folder.result), asked["samples"]
    if result.get("samples") != samples:  # of an earlier call with another --samples
        result = {}
    stored = (one for one in read_records(folder) if one.sample < samples)
    episodes = sorted(stored, key=lambda one: one.key)
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
    for record in episodes:
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
    # A run that is under way, or of another version, lacks some of what the template names.
    made = pages.environment("trainer.report", "report.css", "report.js", ChainableUndefined)
    made.filters |= {"secs": seconds_text, "plain": plain, "counted": counted, "picture": picture}
    made.globals |= {
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "layers": REWARD_WEIGHTS,
    }
    return made


def picture(chart: Chart) -> str:
    drawn = png([replace(chart, title="", note="")], dpi=150, inches=(5.6, 3.8))
    return f"data:image/png;base64,{base64.b64encode(drawn).decode()}"


def plain(value: Any) -> str:
    """Format a setting's value: lists with commas, None and empty lists as "none"."""
    if isinstance(value, Mapping | bool):
        return to_json(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
