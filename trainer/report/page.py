"""The whole report as one HTML file.

The file requests nothing, and its Content-Security-Policy allows no source but its own style sheet
and script, by their digests. A text of an episode that got past the escaping could still not run.
"""

import base64
import hashlib
import time
from pathlib import Path
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from shared.run_stats import MODES
from trainer.config import REWARD_WEIGHTS
from trainer.report import formats, svg, tables
from trainer.report.curves import curves, time_split
from trainer.report.groups import MAX_GROUPS, Group, agrees, chosen_steps, groups
from trainer.report.ledger import LAYERS
from trainer.report.markup import action_markup, cut, is_number, short, sql
from trainer.report.pairs import PER_KIND, kinds_and_pairs
from trainer.report.run_reader import LoadedRun, read_run, training_lines
from trainer.run.folder import to_json

GROUP_BYTES = 2_000_000  # of all groups' markup: the whole file stays under 3 MB
GROUP_ACTION_CHARS = 600


def report(path: Path, data: Path | None = None) -> str:
    """Return the page of the run in a folder. Raise `RunError` if the folder is not a run's."""
    return render(read_run(path, data))


def render(run: LoadedRun) -> str:
    """Return the page of a run."""
    loader = PackageLoader("trainer.report")
    # A run that is under way, or of another version, lacks some of what the template names.
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "num": formats.number_text,
        "signed": formats.signed,
        "secs": formats.seconds_text,
        "plain": formats.plain,
        "meter": formats.meter,
        "advantage_bar": formats.advantage_bar,
        "cut": cut,
        "short": short,
        "json": to_json,
        "sql": sql,
        "draw": svg.draw,
        "values": svg.values,
    }
    environment.tests["number"] = is_number
    style = loader.get_source(environment, "report.css")[0]
    script = loader.get_source(environment, "report.js")[0]
    kinds, pairs = kinds_and_pairs(run)
    group_items, groups_shown = group_markup(environment, run)
    time_chart, seconds = time_split(run)
    return environment.get_template("report.html.j2").render(
        run=run,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=Markup(style),  # ours: no text of a run is in it
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        cards=tables.headlines(run),
        rates=tables.rates(run),
        behaviour=tables.behaviour(run),
        curves=curves(run),
        ledgers=tables.ledgers(run),
        layers=dict(zip(LAYERS, REWARD_WEIGHTS, strict=True)),
        kinds=kinds,
        pairs=pairs,
        per_kind=PER_KIND,
        groups=group_items,
        groups_shown=groups_shown,
        time_chart=time_chart,
        seconds=seconds,
        controls=tables.controls(run),
        counts=tables.counts(run),
        further=tables.further_counts(run),
        settings=tables.settings(run),
        modes=MODES,
    )


def group_markup(environment: Environment, run: LoadedRun) -> tuple[list[dict[str, Any]], str]:
    """Return the shown groups in order, each as markup, and a sentence on what is left out.

    The first and the last step come first, then those between, until `GROUP_BYTES` are spent.
    """
    wanted = chosen_steps(list(run.steps))
    lines = training_lines(run.folder, set(wanted))
    logged = {int(row["step"]): row for row in run.metrics if "reward_std" in row}
    size = int(run.config.get("num_generations") or 0)
    scale = str(run.config.get("scale_rewards", ""))
    template = environment.get_template("group.html.j2")
    items: list[dict[str, Any]] = []
    spent = 0
    for step in wanted:
        rows = lines.get(step, [])
        checked = agrees(rows, logged.get(step))
        for number, group in enumerate(groups(step, rows, size, scale)[:MAX_GROUPS], start=1):
            markup = template.render(
                group=group, checked=checked, rollouts=_rollouts(group), run=run, scale=scale
            )
            spent += len(markup.encode())
            if spent > GROUP_BYTES:
                break
            correct = f"{group.correct}/{len(group.rollouts)} correct"
            label = f"{number}. {short(run.question_text(group.question_id), 80)} ({correct})"
            item = {"step": step, "number": number, "label": label, "contrast": group.contrast}
            items.append({**item, "markup": Markup(markup)})
        if spent > GROUP_BYTES:
            break
    items.sort(key=lambda item: (item["step"], item["number"]))
    # Opened first: a group in which there is something to compare.
    first = next((item for item in items if item["contrast"]), items[0] if items else None)
    for item in items:
        item["first"] = item is first
    total = sum(map(len, run.steps.values()))
    steps = len({item["step"] for item in items})
    return items, (
        f"{len(items)} of {total} groups are on this page, of {steps} of {len(run.steps)} training "
        f"steps; all are in {run.folder.episodes.name}."
    )


def _rollouts(group: Group) -> list[dict[str, Any]]:
    """Return a group's rollouts for its template; `same` is the first with the same actions."""
    rollouts = []
    first: dict[tuple[Any, ...], int] = {}
    members = zip(group.rollouts, group.advantages, strict=True)
    for number, (row, advantage) in enumerate(members, start=1):
        actions, rewards, texts = (row.get(name) or [] for name in ("actions", "rewards", "texts"))
        same = first.setdefault(tuple(actions), number)
        steps = [
            {
                "action": action_markup(str(action), GROUP_ACTION_CHARS),
                "reward": rewards[index] if index < len(rewards) else None,
                "reread": index < len(texts) and bool(texts[index]),
            }
            for index, action in enumerate(actions)
        ]
        # A text after the last answered step is the one that got no answer.
        lost = [text for text in texts[len(actions) :] if text]
        rollout = {"row": row, "advantage": advantage, "steps": steps, "lost": lost}
        rollouts.append({**rollout, "same": same if same != number else None})
    return rollouts


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
