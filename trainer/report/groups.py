"""The G rollouts of one question in one training step, whose rewards GRPO compares."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from shared.pages.markup import short
from shared.run_stats import mean
from trainer.report.browser import Item, browser, turns_markup
from trainer.report.run_reader import LoadedRun, training_episodes
from trainer.report.run_tables import TOTAL, mean_ledger, weights_of
from trainer.run.records import EpisodeRecord

MAX_EPISODES = 20_000  # the page of a longer run has some of its steps
GROUP_FACETS = ("step", "correct", "database", "difficulty")


def share_right(group: Sequence[EpisodeRecord]) -> str:
    """Return which of a group's rollouts are right, lost ones aside: some, all or none."""
    verdicts = {one.correct for one in group if one.reward is not None}
    return "some" if len(verdicts) > 1 else "all" if True in verdicts else "none"


def group_browser(templates: Environment, run: LoadedRun) -> tuple[Markup, str]:
    """Return the browser of the training steps' groups in order, and a sentence on what is left
    out: a page shows about `MAX_EPISODES`, of steps evenly spaced."""
    episodes = run.totals["by_phase"].get("train", {}).get("episodes", 0)
    every = math.ceil(episodes / MAX_EPISODES) or 1
    wanted = sorted({*run.steps[::every], *run.steps[-1:]})
    groups = training_episodes(run.folder, set(wanted))
    template = templates.get_template("group.html.j2")
    items, weights = list[Item](), weights_of(run.config)
    for step in wanted:
        for number, (question_id, group) in enumerate(groups[step].items(), start=1):
            correct, row = sum(one.correct for one in group), group[0]
            rollouts = rollouts_of(group, weights)
            markup = template.render(
                text=run.question_text(question_id),
                question_id=question_id,
                correct=correct,
                mean=mean(one["reward"] for one in rollouts),
                rollouts=rollouts,
            )
            facets = [str(step), share_right(group), row.database, row.difficulty]
            text = short(run.question_text(question_id), 80)
            label = f"step {step}, group {number}: {text} ({correct}/{len(group)} correct)"
            items.append(Item(f"group-{step}-{number}", label, facets, markup))
    shown = (
        f"{len(items)} groups are on this page, of {len(wanted)} of {len(run.steps)} training "
        f"steps; all are in {run.folder.episodes.name}."
    )
    first = next((place for place, one in enumerate(items) if one.facets[1] == "some"), 0)
    return browser(templates, "group", GROUP_FACETS, items, first=first), shown


def rollouts_of(
    group: Sequence[EpisodeRecord], weights: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return the rollouts for their template: `reward` is what GRPO compares, None if lost."""
    rollouts = []
    first: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(group, start=1):
        same = first.setdefault(tuple(row.actions), number)
        shown = {"turns": turns_markup(row)} if same == number else {"same": same}
        reward = mean_ledger([row], weights).get(TOTAL)
        rollouts.append({"row": row, "reward": reward, **shown})
    return rollouts
