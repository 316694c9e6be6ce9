"""The tables of the page, from a run's record: success, behaviour, the reward ledger, controls,
counts, settings."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from shared.errors import SQLEnvError
from shared.run_stats import MODES, PHASES
from trainer.config import REWARD_WEIGHTS, GRPOConfig
from trainer.report.curves import rate_of
from trainer.report.formats import plain
from trainer.report.ledger import LAYERS, Ledger, ledger
from trainer.report.source import Record

REWARD = "reward"  # the sum of the layers
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
    {
        "train_steps",
        "wall_s",
        "seed",
        "rollout_s",
        "env_wait_s",
        "generate_s",
        "update_s",
        "rank_wait_s",
        "processes",
    }
    | {"episodes", "episodes_lost", "env_errors", "parse_failures", "context_overflows"}
)
# settings that differ from a preset's without meaning anything
PATHS = frozenset({"server_urls", "output_dir"})


def headlines(record: Record) -> list[dict[str, Any]]:
    """The few numbers that a reader wants first: success before and after, greedy and sampled, and
    what it took."""
    made = []
    for part in ("unseen", "overall"):
        for mode in MODES:
            before, after = (
                rate_of(record, "before", mode, part),
                rate_of(record, "after", mode, part),
            )
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
    """The table of success: a column a part and difficulty, a row a policy and mode, and the change
    of each mode."""
    levels = sorted(
        {
            level
            for modes in record.summaries.values()
            for result in modes.values()
            for level in result.get("by_difficulty", {})
        },
        key=lambda level: (
            ["easy", "medium", "hard"].index(level) if level in ("easy", "medium", "hard") else 9,
            level,
        ),
    )

    def cells(phase: str, mode: str) -> list[Any]:
        result = record.summaries.get(phase, {}).get(mode, {})
        return [
            *(result.get(part) for part in PARTS),
            *(result.get("by_difficulty", {}).get(one) for one in levels),
        ]

    rows: list[tuple[str, list[Any], list[str] | None]] = []
    rows += (
        [("random actions", cells("random", "sampled"), None)]
        if "random" in record.summaries
        else []
    )
    for mode in MODES:
        before, after = cells("before", mode), cells("after", mode)
        for label, found in ((f"before, {mode}", before), (f"after, {mode}", after)):
            if any(found):
                rows.append((label, found, None))
        if any(before) and any(after):
            rows.append(
                (f"change, {mode}", [], [change(*pair) for pair in zip(before, after, strict=True)])
            )
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
    """A ledger table for all, unseen and seen databases: (column, Ledger) for every measurement
    with its episodes."""
    version = str(record.settings.get("reward_version", ""))
    made = []
    for part in PARTS:
        columns: list[tuple[str, str, Ledger]] = []
        for mode in MODES:
            for phase in PHASES:
                result = record.evaluations.get(phase, {}).get(mode)
                if result is None:
                    continue
                found = ledger(
                    [one for one in result.episodes if part in ("overall", one.part)], version
                )
                if found is not None:
                    columns.append((phase, mode, found))
        if columns:
            made.append(
                {"part": part, "columns": columns, "version": version, "rows": ledger_rows(columns)}
            )
    return made


def ledger_rows(columns: Sequence[tuple[str, str, Ledger]]) -> dict[str, Any]:
    """The table's headings, (label, n, whether it is a change), and rows, (label, kind, a number a
    heading).

    A mode's change stands after its before and after.
    """
    found = {(phase, mode): one for phase, mode, one in columns}
    heads: list[tuple[str, int, bool]] = []
    filled: list[dict[str, float]] = []
    for phase, mode, one in columns:
        heads.append((f"{phase}, {mode}", one.n, False))
        filled.append(_flat(one))
        before = found.get(("before", mode))
        if phase == "after" and before is not None:
            was = _flat(before)
            heads.append((f"change, {mode}", one.n, True))
            filled.append({name: value - was[name] for name, value in _flat(one).items()})
    weights = dict(zip(LAYERS, REWARD_WEIGHTS, strict=True))
    rows = []
    for name in filled[0]:
        kind = "layer" if name in weights else "sum" if name == REWARD else "part"
        label = name if weights.get(name, 1) == 1 else f"{weights[name]:g} × {name}"
        rows.append((label, kind, [one[name] for one in filled]))
    return {"heads": heads, "rows": rows}


def _flat(one: Ledger) -> dict[str, float]:
    """A ledger's numbers in the order of the table: the parts follow the operational layer, the
    last one."""
    return {**one.layers, **one.parts, REWARD: one.total}


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
            rows.append(
                {"key": key, "label": POLICIES.get(key, key), "modes": modes, "seconds": seconds}
            )
    missing = [
        name for name in ("expert", "sft", "best_of_8", "shuffled") if name not in record.controls
    ]
    against = []
    after = record.summaries.get("after", {})
    for row in rows:
        if row["key"] in ("random", "after"):
            continue
        said = {mode: change(row["modes"].get(mode, {}).get("unseen"), after.get(mode, {}).get("unseen"))
                for mode in MODES}  # fmt: skip
        if any(said.values()):
            against.append(
                (row["label"], "; ".join(f"{mode} {text}" for mode, text in said.items() if text))
            )
    sizes = {
        where: next(
            (
                found["n"]
                for row in rows
                for modes in row["modes"].values()
                if (found := modes.get(where))
            ),
            None,
        )
        for where in PARTS
    }
    return {"rows": rows if record.controls else [], "sizes": sizes, "missing": missing, "against": against,
            "notes": {name: kept.get("notes") for name, kept in record.controls.items()}}  # fmt: skip


def counts(record: Record) -> dict[str, Any]:
    """Phase by phase, everything that is counted and not a success. The episodes' own lines, read
    for this page."""
    names = sorted({name for found in record.counts.values() for name in found} - {"episodes"})
    order = [
        name for name in ("random", "before", "train", "eval", "after") if name in record.counts
    ]
    order += [name for name in record.counts if name not in order]
    rows = [
        (phase, [record.counts[phase].get(name, 0) for name in ("episodes", *names)])
        for phase in order
    ]
    total = (
        [sum(cells) for cells in zip(*(cells for _, cells in rows), strict=True)] if rows else []
    )
    told = {name: value for name, value in record.summary.items() if name in ("episodes", *names)}
    counted = dict(zip(("episodes", *names), total, strict=False))
    return {
        "names": ["episodes", *names],
        "rows": rows,
        "total": total,
        "differ": {
            name: (value, counted[name])
            for name, value in told.items()
            if counted.get(name) != value
        },
    }


def further(record: Record) -> dict[str, Any]:
    """Other counts: of the run's end, and of the rows of metrics.jsonl."""
    found: dict[str, Any] = {}
    for name, value in record.summary.items():
        if isinstance(value, int | float) and name not in PLACED:
            found[name.replace("_", " ")] = value
    clipped = [
        row["completions/clipped_ratio"]
        for row in record.metrics
        if "completions/clipped_ratio" in row
    ]
    if clipped:
        found["largest share of a step's rows without an end (completions/clipped_ratio)"] = max(
            clipped
        )
    if not record.finished:
        rebuilds = [row["rebuilds"] for row in record.metrics if row.get("rebuilds") is not None]
        found["rebuilds of training episodes"] = sum(rebuilds) if rebuilds else "not recorded"
    return found


def settings(record: Record) -> list[tuple[str, Any, str]]:
    """(name, value, the preset's value where it is another) of every setting."""
    preset: dict[str, Any] = {}
    with suppress(SQLEnvError):  # a preset that this version does not have
        preset = GRPOConfig.preset(str(record.settings.get("preset"))).__dict__
    found = []
    for name, value in record.config.items():
        usual = preset.get(name, value)
        found.append((name, value, "" if usual == value or name in PATHS else plain(usual)))
    for name, value in (record.settings.get("options") or {}).items():
        found.append((name, value, ""))
    return found
