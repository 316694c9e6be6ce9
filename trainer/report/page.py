"""The report of one run as one HTML file."""

from pathlib import Path
from typing import Any

from jinja2 import Environment

from shared.pages.markup import short
from trainer.report import tables
from trainer.report.browser import Item, browser
from trainer.report.curves import curves, time_split
from trainer.report.groups import Group, chosen_steps, groups
from trainer.report.questions import (
    UNKNOWN,
    facets_of,
    kinds_of,
    policies_of,
    question_items,
    turns_markup,
)
from trainer.report.run_reader import LoadedRun, read_run, training_lines
from trainer.report.shell import environment
from trainer.run.records import EpisodeRecord

MAX_EPISODES = 20_000  # of groups: the page of a longer run has some of its steps
GROUP_ACTION_CHARS = 600
GROUP_FACETS = ("step", "correct", "database", "difficulty")


def report(path: Path, data: Path | None = None) -> str:
    """Return the page of the run in a folder. Raise `RunError` if the folder is not a run's."""
    return render(read_run(path, data))


def render(run: LoadedRun) -> str:
    """Return the page of a run."""
    templates = environment()
    policies, kinds = policies_of(run), kinds_of(run)
    items = question_items(templates, policies, run.questions, kinds)
    group_list, groups_shown = group_items(templates, run)
    # Shown first: a group in which there is something to compare.
    mixed = (place for place, one in enumerate(group_list) if one.facets[1] == "some")
    return templates.get_template("report.html.j2").render(
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
        settings=tables.settings(run),
    )


def group_items(templates: Environment, run: LoadedRun) -> tuple[list[Item], str]:
    """Return the groups of the training steps in order, and a sentence on what is left out.

    Of a run of more than `MAX_EPISODES` the first and the last step come first, then those between.
    """
    episodes = run.counts.get("train", {}).get("episodes", 0)
    most = MAX_EPISODES * len(run.steps) // max(1, episodes)
    wanted = run.steps if episodes <= MAX_EPISODES else chosen_steps(run.steps, most)
    lines = training_lines(run.folder, set(wanted))
    size = int(run.config["num_generations"])
    template = templates.get_template("group.html.j2")
    items: list[Item] = []
    for step in wanted:
        found = groups(step, lines.get(step, []), size)
        for number, group in enumerate(found, start=1):
            markup = template.render(group=group, rollouts=_rollouts(group), run=run)
            correct, first = f"{group.correct}/{len(group.rollouts)} correct", group.rollouts[0]
            share = "some" if group.contrast else "all" if group.correct else "none"
            facets = [str(step), share]
            facets += [str(first.get(name, UNKNOWN)) for name in GROUP_FACETS[2:]]
            text = short(run.question_text(group.question_id), 80)
            label = f"step {step}, group {number}: {text} ({correct})"
            items.append(Item(f"group-{step}-{number}", label, facets, markup))
    shown = (
        f"{len(items)} groups are on this page, of {len(wanted)} of {len(run.steps)} training "
        f"steps; all are in {run.folder.episodes.name}."
    )
    if any(one.facets[1] == "some" for one in items):
        shown += " The first group with both correct and wrong rollouts is opened."
    if items and not run.folder.observations.exists():
        shown += " The run did not keep the results of their actions."
    return items, shown


def _rollouts(group: Group) -> list[dict[str, Any]]:
    """Return a group's rollouts for its template; `same` is the first with the same actions."""
    rollouts = []
    first: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(group.rollouts, start=1):
        rollout: dict[str, Any] = {"row": row}
        same = first.setdefault(tuple(row["actions"]), number)
        if same == number:
            record = EpisodeRecord.of_line(row, row.get("seen"))
            rollout["turns"] = turns_markup(record, GROUP_ACTION_CHARS)
        else:
            rollout["same"] = same
        rollouts.append(rollout)
    return rollouts
