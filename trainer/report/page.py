"""The whole report as one HTML file: what the template shows, gathered from a run's record.

The file asks for nothing outside itself, and its Content-Security-Policy forbids that it could: no source but its own
style sheet and script, by their digests. So a text of an episode that got past the escaping could still not run.
"""

import base64
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from shared.errors import SQLEnvError
from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.report import charts
from trainer.report.curves import curves, rate_of, time_split
from trainer.report.groups import MAX_GROUPS, Group, agrees, chosen_steps, groups
from trainer.report.ledger import CLAMP, LAYERS, Ledger, ledger
from trainer.report.pairs import EACH_KIND, kinds_and_pairs
from trainer.report.shown import cut, is_number, shown_action, sql
from trainer.report.source import MODES, PHASES, Record, read_run, training_lines
from trainer.runs import to_json

GROUP_BYTES = 2_200_000  # of all groups' markup: with the rest the file stays under 5 MB
GROUP_ACTION_CHARS = 600
PARTS = ("overall", "unseen", "seen")
POLICIES = {
    "random": "random actions",
    "before": "before: untrained start",
    "pass_at_8": "best of 8 before, picked by the gold (pass@8)",
    "vote_of_8": "best of 8 before, majority vote",
    "expert": "expert-only base, no RL",
    "shuffled": "GRPO, shuffled rewards",
    "sft": "SFT on gold SQL, equal time",
    "after": "after: GRPO",
}
# of summary.json, what the page has a place for; other numbers are listed among the counts
PLACED = frozenset(
    {"train_steps", "wall_s", "seed", "rollout_s", "env_wait_s", "generate_s", "update_s", "rank_wait_s", "processes"}
    | {"episodes", "episodes_lost", "env_errors", "parse_failures", "context_overflows"}
)
PATHS = frozenset({"server_urls", "output_dir"})  # settings that differ from a preset's without meaning anything


def report(path: Path, data: Path | None = None) -> str:
    """The page of the run in a folder. `RunError` where the folder is no run's."""
    return render(read_run(path, data))


def render(record: Record) -> str:
    """The page of a run."""
    environment = Environment(
        loader=PackageLoader("trainer.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "num": number_text, "signed": signed, "secs": seconds_text, "cut": cut, "json": to_json,
        "plain": plain, "sql": sql, "draw": charts.draw, "values": charts.values, "meter": meter,
    }  # fmt: skip
    environment.filters["lean"] = lean
    environment.tests["number"] = is_number
    style, script = (environment.loader.get_source(environment, name)[0] for name in ("report.css", "report.js"))  # type: ignore[union-attr]
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
        cards=headlines(record),
        rates=rates(record),
        behaviour=behaviour(record),
        curves=curves(record),
        ledgers=ledgers(record),
        layers=dict(zip(LAYERS, REWARD_WEIGHTS, strict=True)),
        clamp=CLAMP,
        kinds=kinds,
        pairs=pairs,
        each_kind=EACH_KIND,
        groups=shown,
        groups_left_out=left_out,
        split=split,
        seconds=seconds,
        controls=controls(record),
        counts=counts(record),
        further=further(record),
        settings=settings(record),
        modes=MODES,
        parts=PARTS,
    )


def headlines(record: Record) -> list[dict[str, Any]]:
    """The few numbers that a reader wants first: success before and after, greedy and sampled, and what it took."""
    made = []
    for part in ("unseen", "overall"):
        for mode in MODES:
            before, after = rate_of(record, "before", mode, part), rate_of(record, "after", mode, part)
            if after is None and before is None:
                continue
            where = "unseen databases" if part == "unseen" else "all eval questions"
            made.append({"title": f"Success, {mode}, {where}", "before": before, "after": after,
                         "change": change(before, after)})  # fmt: skip
    return made


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """How a rate stands to another: "+12.3 points, intervals apart"; empty where one is missing."""
    if not before or not after or before.get("rate") is None or after.get("rate") is None:
        return ""
    apart = after["ci95"][0] > before["ci95"][1] or after["ci95"][1] < before["ci95"][0]
    points = 100 * (after["rate"] - before["rate"])
    return f"{points:+.1f} points, intervals {'apart' if apart else 'overlap'}".replace("-", "−")


def rates(record: Record) -> dict[str, Any]:
    """The table of success: a column a part and difficulty, a row a policy and mode, and the change of each mode."""
    levels = sorted(
        {
            level
            for modes in record.summaries.values()
            for result in modes.values()
            for level in result.get("by_difficulty", {})
        },
        key=lambda level: (["easy", "medium", "hard"].index(level) if level in ("easy", "medium", "hard") else 9, level),
    )

    def cells(phase: str, mode: str) -> list[Any]:
        result = record.summaries.get(phase, {}).get(mode, {})
        return [*(result.get(part) for part in PARTS), *(result.get("by_difficulty", {}).get(one) for one in levels)]

    rows = [("random actions", cells("random", "sampled"), None)] if "random" in record.summaries else []
    for mode in MODES:
        before, after = cells("before", mode), cells("after", mode)
        for label, found in ((f"before, {mode}", before), (f"after, {mode}", after)):
            if any(found):
                rows.append((label, found, None))
        if any(before) and any(after):
            rows.append((f"change, {mode}", [], [change(*pair) for pair in zip(before, after, strict=True)]))
    first = next((cells for _, cells, _ in rows if cells), [])
    sizes = [one["n"] if one else None for one in first]
    return {"headings": list(zip([*PARTS, *levels], sizes, strict=False)), "rows": rows}


def behaviour(record: Record) -> list[tuple[str, Mapping[str, Any]]]:
    """What a policy does on the whole eval set, a row a measurement."""
    return [
        (f"{phase}, {mode}", {**found, "outcomes": result.get("outcomes", {})})
        for phase in PHASES
        for mode, result in record.summaries.get(phase, {}).items()
        if (found := result.get("behaviour", {}).get("overall"))
    ]


def ledgers(record: Record) -> list[dict[str, Any]]:
    """A ledger table for all, unseen and seen databases: (column, Ledger) for every measurement with its episodes."""
    version = str(record.settings.get("reward_version", ""))
    made = []
    for part in PARTS:
        columns: list[tuple[str, str, Ledger]] = []
        for mode in MODES:
            for phase in PHASES:
                result = record.evaluations.get(phase, {}).get(mode)
                if result is None:
                    continue
                found = ledger([one for one in result.episodes if part in ("overall", one.part)], version)
                if found is not None:
                    columns.append((phase, mode, found))
        if columns:
            made.append({"part": part, "columns": columns, "version": version, "rows": ledger_rows(columns)})
    return made


def ledger_rows(columns: Sequence[tuple[str, str, Ledger]]) -> dict[str, Any]:
    """The table's headings and rows: after before and after of a mode the change, marked `True` in `changes`."""
    found = {(phase, mode): one for phase, mode, one in columns}
    heads: list[tuple[str, Ledger | None, Ledger | None]] = []
    for phase, mode, one in columns:
        heads.append((f"{phase}, {mode}", one, None))
        before = found.get(("before", mode))
        if phase == "after" and before is not None:
            heads.append((f"change, {mode}", one, before))

    def cells(value: Callable[[Ledger], float]) -> list[float]:
        return [value(one) - (value(before) if before else 0.0) for _, one, before in heads if one]

    rows: list[tuple[str, str, list[float]]] = []
    for name, weight in zip(LAYERS, REWARD_WEIGHTS, strict=True):
        label = name if weight == 1 else f"{weight:g} × {name}"
        rows.append((label, "layer", cells(lambda one, name=name: one.layers[name])))  # type: ignore[misc]
        if name == "operational":
            for part in columns[0][2].parts:
                rows.append((part, "part", cells(lambda one, part=part: one.parts[part])))  # type: ignore[misc]
    rows.append(("reward", "sum", cells(lambda one: one.total)))
    return {
        "heads": [(label, one.n if one else 0, before is not None) for label, one, before in heads],
        "rows": rows,
    }


def group_markup(environment: Environment, record: Record) -> tuple[list[dict[str, Any]], str]:
    """The shown groups in order, each as markup, and what was left out in words.

    The first and the last step come first, then those between, until `GROUP_BYTES` are spent.
    """
    wanted = chosen_steps(list(record.batches))
    lines = training_lines(record.run, set(wanted))
    logged = {int(row["step"]): row for row in record.metrics if "reward_std" in row}
    size, scale = int(record.config.get("num_generations") or 0), str(record.config.get("scale_rewards", ""))
    template = environment.get_template("group.html.j2")
    made: list[dict[str, Any]] = []
    spent = 0
    for step in wanted:
        found = groups(step, lines.get(step, []), size, scale)
        checked = agrees(lines.get(step, []), logged.get(step))
        for number, group in enumerate(found[:MAX_GROUPS], start=1):
            markup = template.render(
                group=group, number=number, checked=checked, rollouts=_rollouts(group), record=record, scale=scale
            )
            spent += len(markup.encode())
            if spent > GROUP_BYTES:
                break
            label = f"{number}. {cut(record.text(group.question_id), 80)} ({group.right}/{len(group.rollouts)} right)"
            made.append(
                {"step": step, "number": number, "label": label, "markup": Markup(markup), "contrast": group.contrast}
            )
        if spent > GROUP_BYTES:
            break
    made.sort(key=lambda one: (one["step"], one["number"]))
    first = next((one for one in made if one["contrast"]), made[0] if made else None)
    for one in made:
        one["first"] = one is first  # opened: where all are right or none, there is little to compare
    whole = sum(len(batch.questions) for batch in record.batches.values())
    steps = len({one["step"] for one in made})
    return made, (
        f"{len(made)} of {whole} groups are on this page, of {steps} of {len(record.batches)} training steps; "
        f"all are in {record.run.episodes.name}."
    )


def _rollouts(group: Group) -> list[dict[str, Any]]:
    """Each rollout with its actions, highlighted, and the number of an earlier one that did the same."""
    first: dict[tuple[str, ...], int] = {}
    found = []
    for number, (row, advantage) in enumerate(zip(group.rollouts, group.advantages, strict=True), start=1):
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


def controls(record: Record) -> dict[str, Any]:
    """The policies of the controls between the run's own, and which controls are missing."""
    policies: dict[str, tuple[Mapping[str, Any], float | None]] = {}
    for kept in record.controls.values():
        for key, modes in kept["policies"].items():
            policies[str(key)] = (modes, kept.get("seconds") or None)
    rows = []
    for key in [*POLICIES, *(key for key in policies if key not in POLICIES)]:
        if key in PHASES:
            modes, seconds = record.summaries.get(key, {}), None
            if key == "after":
                seconds = record.summary.get("cost", {}).get("train_s")
        elif key in policies:
            modes, seconds = policies[key]
        else:
            continue
        if modes:
            rows.append({"key": key, "label": POLICIES.get(key, key), "modes": modes, "seconds": seconds})
    missing = [name for name in ("expert", "sft", "best_of_8", "shuffled") if name not in record.controls]
    against = []
    after = record.summaries.get("after", {})
    for row in rows:
        if row["key"] in ("random", "after"):
            continue
        said = {mode: change(row["modes"].get(mode, {}).get("unseen"), after.get(mode, {}).get("unseen"))
                for mode in MODES}  # fmt: skip
        if any(said.values()):
            against.append((row["label"], "; ".join(f"{mode} {text}" for mode, text in said.items() if text)))
    sizes = {where: (rates[0] if (rates := [found["n"] for row in rows for modes in row["modes"].values() if (found := modes.get(where))]) else None) for where in PARTS}
    return {"rows": rows if record.controls else [], "sizes": sizes, "missing": missing, "against": against,
            "notes": {name: kept.get("notes") for name, kept in record.controls.items()}}  # fmt: skip


def counts(record: Record) -> dict[str, Any]:
    """Phase by phase, everything that is counted and not a success. The episodes' own lines, read for this page."""
    names = sorted({name for found in record.counts.values() for name in found} - {"episodes"})
    order = [name for name in ("random", "before", "train", "eval", "after") if name in record.counts]
    order += [name for name in record.counts if name not in order]
    rows = [(phase, [record.counts[phase].get(name, 0) for name in ("episodes", *names)]) for phase in order]
    total = [sum(cells) for cells in zip(*(cells for _, cells in rows), strict=True)] if rows else []
    told = {name: value for name, value in record.summary.items() if name in ("episodes", *names)}
    counted = dict(zip(("episodes", *names), total, strict=False))
    return {
        "names": ["episodes", *names],
        "rows": rows,
        "total": total,
        "differ": {name: (value, counted[name]) for name, value in told.items() if counted.get(name) != value},
    }


def further(record: Record) -> dict[str, Any]:
    """Other counts: of the run's end, and of the rows of metrics.jsonl."""
    found: dict[str, Any] = {}
    for name, value in record.summary.items():
        if isinstance(value, int | float) and name not in PLACED:
            found[name] = value
    clipped = [row["completions/clipped_ratio"] for row in record.metrics if "completions/clipped_ratio" in row]
    if clipped:
        found["largest share of a step's rows without an end (completions/clipped_ratio)"] = max(clipped)
    if not record.finished:
        rebuilds = [row["rebuilds"] for row in record.metrics if row.get("rebuilds") is not None]
        found["rebuilds of training episodes"] = sum(rebuilds) if rebuilds else "not recorded"
    return found


def settings(record: Record) -> list[tuple[str, Any, str]]:
    """(name, value, the preset's value where it is another) of every setting."""
    preset: dict[str, Any] = {}
    try:
        preset = GRPOConfig.preset(str(record.settings.get("preset"))).__dict__
    except SQLEnvError:  # a preset that this version does not have
        pass
    found = []
    for name, value in record.config.items():
        usual = preset.get(name, value)
        found.append((name, value, "" if usual == value or name in PATHS else plain(usual)))
    for name, value in (record.settings.get("options") or {}).items():
        found.append((name, value, ""))
    return found


def meter(rate: Mapping[str, Any] | None) -> Markup:
    """A rate as a bar of 100 units with its interval; empty where there is none. The number stands beside it."""
    if not rate or rate.get("rate") is None:
        return Markup("")
    low, high = rate["ci95"]
    return Markup(
        '<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/><rect class="level" width="{:.1f}" height="8"/>'
        '<rect class="interval" x="{:.1f}" y="3" width="{:.1f}" height="2"/></svg>'
    ).format(100 * rate["rate"], 100 * low, max(0.5, 100 * (high - low)))


def lean(advantage: float | None) -> Markup:
    """An advantage as a bar to the right of the middle, or to the left of it; full at 2.5."""
    if advantage is None:
        return Markup("")
    width = 25 * min(abs(advantage) / 2.5, 1.0)
    return Markup(
        '<svg class="lean" viewBox="0 0 50 8" aria-hidden="true"><rect class="{}" x="{:.1f}" width="{:.1f}" height="8"/>'
        '<path class="axis" d="M25 0v8"/></svg>'
    ).format("more" if advantage > 0 else "less", 25.0 if advantage > 0 else 25 - width, width)


def number_text(value: Any, digits: int = 2) -> str:
    return f"{value:,.{digits}f}".replace("-", "−") if isinstance(value, int | float) else "–"


def signed(value: Any, digits: int = 3) -> str:
    """With its sign, a true minus; "–" where there is no number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def seconds_text(value: Any) -> str:
    """12.3 s, 4 min 5 s, 1 h 12 min."""
    if not isinstance(value, int | float):
        return "–"
    if value < 60:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plain(value: Any) -> str:
    """A setting's value as text: lists by commas, nothing as "none"."""
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else to_json(value) if isinstance(value, Mapping | bool) else str(value)


def _csp_hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
