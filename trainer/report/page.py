"""The report of one run as one HTML file."""

from collections.abc import Sequence
from pathlib import Path

from trainer.report import tables
from trainer.report.curves import curves, time_split
from trainer.report.groups import GROUP_FACETS, group_items
from trainer.report.questions import browser, facets_of, kinds_of, policies_of, question_items
from trainer.report.run_reader import Gap, read_run
from trainer.report.shell import environment


def run_page(path: Path, data: Path | None = None) -> tuple[str, Sequence[Gap]]:
    """Return the page of the run in a folder, and what it can't show.

    `data` replaces the data directory in the run's settings. Raise `RunError` if the folder is not
    a run's.
    """
    run = read_run(path, data)
    templates = environment()
    policies, kinds = policies_of(run), kinds_of(run)
    items = question_items(templates, policies, run.questions, kinds)
    group_list, groups_shown = group_items(templates, run)
    # Shown first: a group in which there is something to compare.
    mixed = (place for place, one in enumerate(group_list) if one.facets[1] == "some")
    page = templates.get_template("report.html.j2").render(
        run=run,
        cards=tables.headlines(run),
        rates=tables.rates(run),
        behaviour=tables.behaviour(run),
        curves=curves(run),
        ledger=tables.ledger(run),
        kinds=kinds,
        questions=browser(templates, "question", facets_of(kinds), items, [*policies]),
        question_count=len(items),
        groups=browser(templates, "group", GROUP_FACETS, group_list, first=next(mixed, 0)),
        groups_shown=groups_shown,
        seconds=time_split(run),
        counts=tables.counts(run),
        settings={**run.config, **(run.settings.get("options") or {})},
    )
    return page, run.gaps
