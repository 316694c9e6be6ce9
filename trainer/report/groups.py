"""The G rollouts of one question in one training step, whose rewards GRPO compares."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from shared.pages.markup import short
from shared.run_stats import mean
from trainer.report.browser import Item, browser, turns_markup
from trainer.report.run_reader import LoadedRun, training_episodes
from trainer.run.records import EpisodeRecord

MAX_EPISODES = 20_000  # the page of a longer run has some of its steps
GROUP_FACETS = ("step", "correct", "database", "difficulty")


@dataclass(frozen=True)
class Group:
    step: int
    question_id: str
    rollouts: Sequence[EpisodeRecord]

    @property
    def correct(self) -> int:
        return sum(one.correct for one in self.rollouts)

    @property
    def rewards(self) -> list[float]:
        return [one.reward for one in self.rollouts if one.reward is not None]

    @property
    def contrast(self) -> bool:
        return 0 < self.correct < len(self.rewards)

    @property
    def mean(self) -> float | None:
        return mean(self.rewards)


def groups(step: int, rows: Sequence[EpisodeRecord], size: int) -> list[Group]:
    """Cut a generation batch into groups: the rows of a question, in order, `size` in each."""
    by_question: dict[str, list[EpisodeRecord]] = {}
    for row in rows:
        by_question.setdefault(row.question_id, []).append(row)
    return [
        Group(step, question, members[start : start + size])
        for question, members in by_question.items()
        for start in range(0, len(members), size)
    ]


def group_browser(templates: Environment, run: LoadedRun) -> tuple[Markup, str]:
    """Return the browser of the training steps' groups in order, and a sentence on what is left
    out: a page shows about `MAX_EPISODES`, of steps evenly spaced."""
    episodes = run.totals["by_phase"].get("train", {}).get("episodes", 0)
    every = math.ceil(episodes / MAX_EPISODES) or 1
    wanted = sorted({*run.steps[::every], *run.steps[-1:]})
    lines = training_episodes(run.folder, set(wanted))
    size = int(run.config["num_generations"])
    template = templates.get_template("group.html.j2")
    items: list[Item] = []
    for step in wanted:
        found = groups(step, lines.get(step, []), size)
        for number, group in enumerate(found, start=1):
            markup = template.render(group=group, rollouts=_rollouts(group), run=run)
            correct, row = f"{group.correct}/{len(group.rollouts)} correct", group.rollouts[0]
            share = "some" if group.contrast else "all" if group.correct else "none"
            facets = [str(step), share]
            facets += [str(getattr(row, name)) for name in GROUP_FACETS[2:]]
            text = short(run.question_text(group.question_id), 80)
            label = f"step {step}, group {number}: {text} ({correct})"
            items.append(Item(f"group-{step}-{number}", label, facets, markup))
    shown = (
        f"{len(items)} groups are on this page, of {len(wanted)} of {len(run.steps)} training "
        f"steps; all are in {run.folder.episodes.name}."
    )
    first = next((place for place, one in enumerate(items) if one.facets[1] == "some"), 0)
    return browser(templates, "group", GROUP_FACETS, items, first=first), shown


def _rollouts(group: Group) -> list[dict[str, Any]]:
    rollouts = []
    first: dict[tuple[str, ...], int] = {}
    for number, row in enumerate(group.rollouts, start=1):
        rollout: dict[str, Any] = {"row": row}
        same = first.setdefault(tuple(row.actions), number)
        if same == number:
            rollout["turns"] = turns_markup(row)
        else:
            rollout["same"] = same
        rollouts.append(rollout)
    return rollouts
