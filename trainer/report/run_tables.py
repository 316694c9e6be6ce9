"""What a run's page shows beside its episodes: charts and tables."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from shared.console import percent
from shared.models import DIFFICULTIES
from shared.pages.markup import signed
from shared.run_stats import MODES, PARTS, PHASES
from trainer.charts import (
    Chart,
    Point,
    Series,
    logged_and_mean,
    points,
    reward_chart,
    smoothing_note,
    success_chart,
)
from trainer.config.settings import REWARD_WEIGHTS
from trainer.report.run_reader import LoadedRun
from trainer.run.records import EpisodeRecord

TOTAL = "reward"  # the sum of the layers
# key of metrics.jsonl -> title, name of the curve
LOGGED = {
    "loss": ("Policy loss", "policy gradient loss"),
    "entropy": ("Entropy, nats per token", "entropy"),
    "kl": ("KL divergence from the start", "KL to the reference model"),
    "grad_norm": ("Gradient norm, before clipping", "norm"),
    "learning_rate": ("Learning rate", "learning rate"),
    "completions/mean_length": ("Tokens that the model wrote per training episode", "mean"),
    "steps_per_episode": ("Actions per training episode", "mean"),
    "env_errors": ("Environment errors per log event", "errors"),
    "parse_failures": ("Texts without an action per log event", "parse failures"),
    "one_verdict_groups": ("Groups with one verdict: all right or all wrong", "share"),
}


def curves(run: LoadedRun) -> list[Chart]:
    return [
        success_chart(run.metrics, run.summaries, run.last_step),
        reward_chart(run.metrics, run.summaries),
        reward_layers(run),
        *(
            _logged(run, name, *texts)
            for name, texts in LOGGED.items()
            if name != "kl" or run.config.get("beta")
        ),
    ]


def _logged(run: LoadedRun, name: str, title: str, label: str) -> Chart:
    found, share = points(run.metrics, name), name == "one_verdict_groups"
    lines = logged_and_mean(found, label, "blue")
    if name == "learning_rate":  # exact: a mean would hide its schedule
        lines = [Series(label, found, "blue")]
    return Chart(
        name.rpartition("/")[2].replace("_", "-"),
        title,
        lines,
        bounds=(None if name == "loss" else 0.0, 1.0 if share else None),
        form=percent if share else None,
        note=smoothing_note(lines),
    )


def reward_layers(run: LoadedRun) -> Chart:
    lines = []
    for name, colour in zip(REWARD_WEIGHTS, ("blue", "orange", "green"), strict=True):
        values = points(run.metrics, f"reward_{name}")
        lines += logged_and_mean(values, name, colour)
    title = "Reward by layer, with its weight, training episodes"
    return Chart("reward-parts", title, lines, note=smoothing_note(lines))


def agreement(group: Mapping[str, Any]) -> Chart:
    asked, rates = group["success"]["n"], group["agreement"].items()
    right = [
        Point(int(k), one["rate"], *one["ci95"]) for k, one in rates if one["rate"] is not None
    ]
    covered = [Point(int(k), one["n"] / asked) for k, one in rates]
    return Chart(
        "agreement",
        "Accuracy against coverage",
        [
            Series("right of these", right, "blue", "marked", band=True),
            Series("share of questions", covered, "orange", "dashed"),
        ],
        bounds=(0.0, 1.0),
        form=percent,
        note="Area: 95 % Wilson intervals.",
        x_label="attempts that agree, at least",
    )


def change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Compare two rates: "+12.3 points, 95 % intervals overlap"; empty if one is missing."""
    if not before or not after:
        return ""
    apart = after["ci95"][0] > before["ci95"][1] or after["ci95"][1] < before["ci95"][0]
    points = round(100 * after["rate"], 1) - round(100 * before["rate"], 1)
    intervals = f"95 % intervals {'do not overlap' if apart else 'overlap'}"
    return f"{signed(points, 1)} points, {intervals}"


def rates(run: LoadedRun) -> dict[str, Any]:
    measured = [result for modes in run.summaries.values() for result in modes.values()]
    found = {level for result in measured for level in result["by_difficulty"]}
    levels = [one for one in DIFFICULTIES if one in found]
    rows: list[tuple[str, list[Any]]] = [
        (f"{phase}, {mode}", [*map(result.get, PARTS), *map(result["by_difficulty"].get, levels)])
        for mode, phase in product(MODES, PHASES)
        if (result := run.summaries.get(phase, {}).get(mode))
    ]
    sizes = [rate["n"] if rate else None for rate in rows[0][1]] if rows else []
    return {"headings": list(zip([*PARTS, *levels], sizes, strict=False)), "rows": rows}


def weights_of(config: Mapping[str, Any]) -> dict[str, float]:
    weights = config.get("reward_weights", REWARD_WEIGHTS.values())
    return dict(zip(REWARD_WEIGHTS, weights, strict=True))


def weighted(layer: str, weight: float) -> str:
    return layer if weight == 1 else f"{weight:g} × {layer}"


def ledger(run: LoadedRun) -> dict[str, Any]:
    weights = weights_of(run.config)
    columns = {
        f"{phase}, {mode}": means
        for mode, phase in product(MODES, PHASES)
        if (result := run.evaluations.get(phase, {}).get(mode))
        and (means := mean_ledger(result.episodes, weights))["n"]
    }
    if not columns:
        return {}
    known = {name for means in columns.values() for name in means}
    parts = sorted(known - {*REWARD_WEIGHTS, TOTAL, "n"})
    labels = {name: (weighted(name, weight), "layer") for name, weight in weights.items()}
    labels |= {name: (name, "part") for name in parts}  # of the last layer
    labels[TOTAL] = (TOTAL, "sum")
    return {
        "heads": [(label, means["n"]) for label, means in columns.items()],
        "rows": [
            (label, kind, [means.get(name, 0.0) for means in columns.values()])
            for name, (label, kind) in labels.items()
        ],
    }


def mean_ledger(
    episodes: Sequence[EpisodeRecord], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return the mean rewards per episode over the `n` that were not lost: each layer, as weighted,
    the parts of the operational one if they were recorded, and the sum of the layers."""
    played = [one for one in episodes if one.finished and one.reward is not None]
    sums: dict[str, float] = defaultdict(float)
    for one in played:
        for name, weight in weights.items():
            paid = weight * (getattr(one, name) or 0.0)
            sums[name] += paid
            sums[TOTAL] += paid
        for step in one.parts:
            for name in step.keys() - REWARD_WEIGHTS.keys():
                sums[name] += step[name]
    return {"n": len(played), **{name: value / len(played) for name, value in sums.items()}}
