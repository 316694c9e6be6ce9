"""The report of an evaluation, what `python -m trainer evaluate --out DIR` wrote, as one page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.actions import ActionType
from trainer.errors import RunError
from trainer.evaluation.analysis import analyse
from trainer.evaluation.records import EvaluationFolder, read_episodes
from trainer.evaluation.tables import named, p_text
from trainer.report.questions import browser, facets_of, question_items
from trainer.report.run_reader import Gap, read_if_there, read_questions
from trainer.report.shell import environment
from trainer.run.folder import read_json
from trainer.run.records import Book, EpisodeRecord


def evaluation_page(path: Path, data: Path | None = None) -> tuple[str, list[Gap]]:
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
    questions, gaps = read_questions(settings, data, (split,))
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
    items = question_items(templates, {label: played}, questions, {})
    page = templates.get_template("evaluation.html.j2").render(
        name=folder.path.name,
        label=label,
        asked=asked,
        result=result,
        groups=[(name, one) for name, one in groups if one["episodes"]],
        ks=[str(k) for k in ks if k != 1],
        kinds=list(map(str, ActionType)),
        p_text=p_text,
        questions=browser(templates, "question", facets_of({}), items, [label]),
        question_count=len(items),
        settings={**asked, **{k: v for k, v in settings["config"].items() if k not in asked}},
        gaps=gaps,
    )
    return page, gaps
