"""The tables of the page: success, behaviour, the reward ledger, counts, settings."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from shared.models import DIFFICULTIES
from shared.pages.markup import signed
from shared.run_stats import MODES, PARTS, PHASES
from shared.run_stats import counts as episode_counts
from trainer.config import REWARD_WEIGHTS
from trainer.report.run_reader import LoadedRun
from trainer.run.plots import rate_of, weighted
from trainer.run.records import EpisodeRecord

TOTAL = "reward"  # the sum of the layers


def headlines(run: LoadedRun) -> list[dict[str, Any]]:
    """Return the numbers at the top: success before and after, greedy and sampled."""
    cards = []
    for split, where in (("unseen", "unseen databases"), ("overall", "all eval questions")):
        for mode in MODES:
            before = rate_of(run.summaries, "before", mode, split)
            after = rate_of(run.summaries, "after", mode, split)
            if after or before:
                title = f"Success, {mode}, {where}"
                card = {"before": before, "after": after, "change": change(before, after)}
                cards.append({"title": title, **card})
    return cards


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Compare two rates: "+12.3 points, 95 % intervals overlap"; empty if one is missing."""
    if not before or not after:
        return ""
    apart = after["ci95"][0] > before["ci95"][1] or after["ci95"][1] < before["ci95"][0]
    points = round(100 * after["rate"], 1) - round(100 * before["rate"], 1)
    intervals = f"95 % intervals {'do not overlap' if apart else 'overlap'}"
    return f"{signed(points, 1)} points, {intervals}"


def rates(run: LoadedRun) -> dict[str, Any]:
    """Return the table of success: splits and difficulties by policy and mode."""
    measured = [result for modes in run.summaries.values() for result in modes.values()]
    found = {level for result in measured for level in result.get("by_difficulty", {})}
    levels = [*(one for one in DIFFICULTIES if one in found), *sorted(found - {*DIFFICULTIES})]
    rows = [
        (
            f"{phase}, {mode}",
            [*map(result.get, PARTS), *map(result.get("by_difficulty", {}).get, levels)],
        )
        for mode, phase in product(MODES, PHASES)
        if (result := run.summaries.get(phase, {}).get(mode))
    ]
    sizes = [rate["n"] if rate else None for rate in rows[0][1]] if rows else []
    return {"headings": list(zip([*PARTS, *levels], sizes, strict=False)), "rows": rows}


def behaviour(run: LoadedRun) -> list[tuple[str, Mapping[str, Any]]]:
    """Return what each policy does on the whole eval set, one row per evaluation."""
    return [
        (f"{phase}, {mode}", {**means, "outcomes": result.get("outcomes", {})})
        for phase in PHASES
        for mode, result in run.summaries.get(phase, {}).items()
        if (means := result.get("behaviour", {}).get("overall"))
    ]


def ledger(run: LoadedRun) -> dict[str, Any]:
    """Return the table of mean rewards per episode: headings (label, n), and rows (label, kind, a
    number per heading); empty without an evaluation."""
    columns = {
        f"{phase}, {mode}": means
        for mode, phase in product(MODES, PHASES)
        if (result := run.evaluations.get(phase, {}).get(mode))
        and (means := mean_ledger(result.episodes))["n"]
    }
    if not columns:
        return {}
    known = {name for means in columns.values() for name in means}
    parts = sorted(known - {*REWARD_WEIGHTS, TOTAL, "n"})
    labels = {name: (weighted(name), "layer") for name in REWARD_WEIGHTS}
    labels |= {name: (name, "part") for name in parts}  # of the last layer
    labels[TOTAL] = (TOTAL, "sum")
    return {
        "heads": [(label, means["n"]) for label, means in columns.items()],
        "rows": [
            (label, kind, [means.get(name, 0.0) for means in columns.values()])
            for name, (label, kind) in labels.items()
        ],
        "parts": parts,
    }


def mean_ledger(episodes: Sequence[EpisodeRecord]) -> dict[str, float]:
    """Return the mean rewards per episode over the `n` that were not lost: each layer, as weighted,
    the parts of the operational one if they were recorded, and the sum of the layers."""
    played = [one for one in episodes if one.finished and one.reward is not None]
    sums: dict[str, float] = defaultdict(float)
    for one in played:
        for name, weight in REWARD_WEIGHTS.items():
            sums[name] += weight * (getattr(one, name) or 0.0)
        sums[TOTAL] += one.reward or 0.0
        for step in one.parts:
            for name in step.keys() - REWARD_WEIGHTS.keys():
                sums[name] += step[name]
    return {"n": len(played), **{name: value / len(played) for name, value in sums.items()}}


def counts(run: LoadedRun) -> dict[str, Any]:
    """Return the counts of episodes.jsonl by phase."""
    names, by_phase = list(episode_counts([])), run.totals["by_phase"]
    rows = [(phase, [found[name] for name in names]) for phase, found in by_phase.items()]
    return {"names": names, "rows": rows, "total": [run.totals[name] for name in names]}
