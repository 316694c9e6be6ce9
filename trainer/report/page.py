"""The whole report as one HTML file: what the template shows, gathered from a run's record.

The file asks for nothing outside itself, and its Content-Security-Policy forbids that it could: no
source but its own style sheet and script, by their digests. So a text of an episode that got past
the escaping could still not run.
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
from trainer.report import charts, tables
from trainer.report.curves import curves, time_split
from trainer.report.formats import lean, meter, number_text, plain, seconds_text, signed
from trainer.report.groups import MAX_GROUPS, Group, agrees, chosen_steps, groups
from trainer.report.ledger import CLAMP, LAYERS
from trainer.report.pairs import EACH_KIND, kinds_and_pairs
from trainer.report.shown import cut, is_number, short, shown_action, sql
from trainer.report.source import Record, read_run, training_lines
from trainer.run.folder import to_json

GROUP_BYTES = 2_200_000  # of all groups' markup: with the rest the file stays under 5 MB
GROUP_ACTION_CHARS = 600


def report(path: Path, data: Path | None = None) -> str:
    """The page of the run in a folder. `RunError` where the folder is no run's."""
    return render(read_run(path, data))


def render(record: Record) -> str:
    """The page of a run."""
    loader = PackageLoader("trainer.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        # a run that is under way, or of another version, lacks some of what is asked for
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "num": number_text,
        "signed": signed,
        "secs": seconds_text,
        "plain": plain,
        "cut": cut,
        "short": short,
        "json": to_json,
        "sql": sql,
        "draw": charts.draw,
        "values": charts.values,
        "meter": meter,
        "lean": lean,
    }
    environment.tests["number"] = is_number
    style, script = (
        loader.get_source(environment, name)[0] for name in ("report.css", "report.js")
    )
    kinds, pairs = kinds_and_pairs(record)
    shown, left_out = group_markup(environment, record)
    split, seconds = time_split(record)
    return environment.get_template("report.html.j2").render(
        record=record,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        style=Markup(style),  # written by us: no markup of a run is in it
        script=Markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        cards=tables.headlines(record),
        rates=tables.rates(record),
        behaviour=tables.behaviour(record),
        curves=curves(record),
        ledgers=tables.ledgers(record),
        layers=dict(zip(LAYERS, REWARD_WEIGHTS, strict=True)),
        clamp=CLAMP,
        kinds=kinds,
        pairs=pairs,
        each_kind=EACH_KIND,
        groups=shown,
        groups_left_out=left_out,
        split=split,
        seconds=seconds,
        controls=tables.controls(record),
        counts=tables.counts(record),
        further=tables.further(record),
        settings=tables.settings(record),
        modes=MODES,
    )


def group_markup(environment: Environment, record: Record) -> tuple[list[dict[str, Any]], str]:
    """The shown groups in order, each as markup, and what was left out in words.

    The first and the last step come first, then those between, until `GROUP_BYTES` are spent.
    """
    wanted = chosen_steps(list(record.batches))
    lines = training_lines(record.run, set(wanted))
    logged = {int(row["step"]): row for row in record.metrics if "reward_std" in row}
    size, scale = (
        int(record.config.get("num_generations") or 0),
        str(record.config.get("scale_rewards", "")),
    )
    template = environment.get_template("group.html.j2")
    made: list[dict[str, Any]] = []
    spent = 0
    for step in wanted:
        found = groups(step, lines.get(step, []), size, scale)
        checked = agrees(lines.get(step, []), logged.get(step))
        for number, group in enumerate(found[:MAX_GROUPS], start=1):
            markup = template.render(
                group=group,
                number=number,
                checked=checked,
                rollouts=_rollouts(group),
                record=record,
                scale=scale,
            )
            spent += len(markup.encode())
            if spent > GROUP_BYTES:
                break
            label = f"{number}. {short(record.text(group.question_id), 80)} ({group.right}/{len(group.rollouts)} right)"
            made.append(
                {
                    "step": step,
                    "number": number,
                    "label": label,
                    "markup": Markup(markup),
                    "contrast": group.contrast,
                }
            )
        if spent > GROUP_BYTES:
            break
    made.sort(key=lambda one: (one["step"], one["number"]))
    first = next((one for one in made if one["contrast"]), made[0] if made else None)
    for one in made:
        # opened: where all are right or none, there is little to compare
        one["first"] = one is first
    whole = sum(len(batch.questions) for batch in record.batches.values())
    steps = len({one["step"] for one in made})
    return made, (
        f"{len(made)} of {whole} groups are on this page, of {steps} of {len(record.batches)} training steps; "
        f"all are in {record.run.episodes.name}."
    )


def _rollouts(group: Group) -> list[dict[str, Any]]:
    """Each rollout with its actions, highlighted, and the number of an earlier one that did the
    same."""
    first: dict[tuple[str, ...], int] = {}
    found = []
    for number, (row, advantage) in enumerate(
        zip(group.rollouts, group.advantages, strict=True), start=1
    ):
        actions, rewards = list(row.get("actions") or ()), list(row.get("rewards") or ())
        texts = list(row.get("texts") or ())
        # a text beyond the last answered step is the one that was lost
        lost = [text for text in texts[len(actions) :] if text]
        same = first.setdefault(tuple(actions), number)
        steps = [
            (shown_action(str(action), GROUP_ACTION_CHARS), rewards[index] if index < len(rewards) else None,
             bool(index < len(texts) and texts[index]))
            for index, action in enumerate(actions)
        ]  # fmt: skip
        found.append({"row": row, "advantage": advantage, "steps": steps, "same": same if same != number else None,
                      "lost": lost})  # fmt: skip
    return found


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
