"""ablations.md, .json and .png: the table of the ablations, and a dot plot with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.learning.ablations import BASELINE, Ablations, Trainings
from benchmarks.learning.bench import measured
from benchmarks.learning.report import NO_NUMBER, markdown_table, percent, wrapped
from shared.pages.markup import signed
from shared.run_stats import MODES, SEEN, UNSEEN, Rate, mean
from trainer.evaluation.paired import Paired, compare
from trainer.run.charts import COLOURS, png_bytes
from trainer.run.plots import COLOURS as MODE_COLOURS

COLUMNS = [(part, mode) for part in (SEEN, UNSEEN) for mode in MODES]
ASIDE = 0.15  # distance of a mode's dots from the middle of the row


def pooled(row: Trainings, part: str, mode: str) -> Rate:
    """Return success over the episodes of all seeds."""
    rates = [result.policies[row.ablation.slug][mode][part] for result in row.by_seed.values()]
    successes = sum(round((rate["rate"] or 0.0) * rate["n"]) for rate in rates)
    return Rate(successes, sum(rate["n"] for rate in rates))


def average(row: Trainings, note: str) -> float | None:
    """Return the mean of a note over the seeds."""
    return mean(result.notes[note] for result in row.by_seed.values())


def by_question(row: Trainings, seeds: list[int]) -> dict[str, float]:
    """Return the success on seen databases by question, the mean over modes and `seeds`."""
    found = [row.by_seed[seed].notes["by_question"] for seed in seeds]
    common = set.intersection(*map(set, found))
    return {name: sum(one[name] for one in found) / len(found) for name in sorted(common)}


def against(baseline: Trainings | None, row: Trainings, seeds: list[int]) -> Paired | None:
    """Compare with the baseline of the same seeds on seen databases, the mean of both modes."""
    if baseline is None or row is baseline or not seeds:
        return None
    return compare(by_question(baseline, seeds), by_question(row, seeds))


def line(ablations: Ablations, row: Trainings) -> dict[str, Any]:
    """Return the figures of one ablation, as ablations.json has them."""
    baseline = next((one for one in ablations.rows if one.ablation is BASELINE), None)
    shared = sorted(row.by_seed.keys() & (baseline.by_seed.keys() if baseline else set()))
    gains = {seed: against(baseline, row, [seed]) for seed in shared}
    return {
        "about": row.ablation.about,
        "settings": dict(row.ablation.settings),
        "seeds": sorted(row.by_seed),
        "steps": average(row, "steps"),
        "cpu_s": mean(result.seconds for result in row.by_seed.values()),
        "one_verdict": average(row, "one_verdict"),
        "success": {
            part: {mode: pooled(row, part, mode).as_dict() for mode in MODES}
            for part in (SEEN, UNSEEN)
        },
        "against_baseline": against(baseline, row, shared),
        "against_baseline_by_seed": {
            seed: gain["difference"] for seed, gain in gains.items() if gain
        },
    }


def as_json(ablations: Ablations, commands: Sequence[str]) -> dict[str, Any]:
    """Return ablations.json."""
    finished = ablations.finished
    return {
        "commands": list(commands),
        "run": finished.run.id,
        "cpu_s": ablations.cpu_s,
        "digests": finished.digests,
        "before": {
            mode: {part: one[part] for part in (SEEN, UNSEEN)}
            for mode, one in measured(finished.run, "before").items()
        },
        "ablations": {row.ablation.name: line(ablations, row) for row in ablations.rows},
    }


def gain_cell(gain: Paired | None) -> str:
    """Format a difference in points as "+2.0 [-1.1, +5.0]"."""
    if gain is None or gain["difference"] is None:
        return NO_NUMBER
    low, high = gain["ci95"]
    return f"{points(gain['difference'])} [{points(low)}, {points(high)}]"


def points(difference: float) -> str:
    return signed(100 * difference, 1)


def table(ablations: Ablations) -> str:
    before = measured(ablations.finished.run, "before")
    start = [percent(before.get(mode, {}).get(part)) for part, mode in COLUMNS]
    blank = [NO_NUMBER] * 2
    rows = [["before GRPO", *start[:2], *blank, *start[2:], *blank, NO_NUMBER]]
    for row in ablations.rows:
        found = line(ablations, row)
        rates = [percent(found["success"][part][mode]) for part, mode in COLUMNS]
        gain = [
            gain_cell(found["against_baseline"]),
            ", ".join(map(points, found["against_baseline_by_seed"].values())) or NO_NUMBER,
        ]
        share = found["one_verdict"]
        counts = [
            f"{found['steps']:.0f}",
            NO_NUMBER if share is None else f"{100 * share:.0f}",
            ", ".join(map(str, found["seeds"])),
        ]
        rows.append([row.ablation.name, *rates[:2], *gain, *rates[2:], *counts])
    headings = [f"{part}, {mode}" for part, mode in COLUMNS]
    gains = ["seen, against the baseline", "by seed"]
    counts = ["steps", "groups of one verdict, %", "seeds"]
    return markdown_table(["ablation", *headings[:2], *gains, *headings[2:], *counts], rows)


def page(ablations: Ablations, commands: Sequence[str]) -> str:
    """Return ablations.md."""
    finished = ablations.finished
    config = finished.config
    head = [
        f"Each row trains the model that run {finished.run.id} started from, with the run's "
        "settings and one change, until the step in which training has taken "
        f"{ablations.cpu_s:,.0f} CPU-seconds: rollouts and updates, in one process with one "
        "thread. Equal in all rows: the CPU time, the start, the eval questions with their prompts "
        f"and sampling seed, and the {config.rollouts_per_step} episodes per step. Not equal: the "
        "number of steps, as they differ in cost.",
        "Success in % over the episodes of all seeds, with 95 % Wilson intervals, which count the "
        "seeds' episodes on one question as independent. The difference from the baseline is in "
        "points on the questions about seen databases, so that those about unseen ones do not "
        "influence a choice of defaults: the mean of both modes, with a 95 % interval paired by "
        "question, and beside it each seed's own. The interval does not contain the differences "
        "between seeds. Groups are the episodes of one question in a step: of one verdict are "
        "those that are all right or all wrong.",
        "Fresh questions are not about the databases called seen here, so for that row both "
        "columns are of databases that it was not trained on.",
    ]
    shown = {row.ablation.name for row in ablations.rows}
    if "fresh questions" not in shown:
        head.pop()
    changes = "\n".join(
        wrapped(f"- {row.ablation.name}: {row.ablation.about}") for row in ablations.rows
    )
    text = "\n\n".join(map(wrapped, head))
    picture = "![Success of every ablation](ablations.png)"
    code = "\n".join(f"    {command}" for command in commands)
    parts = ["# What makes GRPO stronger here", text, code]
    return "\n\n".join([*parts, table(ablations) + f"\n{picture}", changes]) + "\n"


def label(row: Trainings, seeds: list[int]) -> str:
    """Return the name of a row, with its seeds if they are not all `seeds` of the table."""
    own = sorted(row.by_seed)
    named = f" (seed{'s' * (len(own) > 1)} {', '.join(map(str, own))})"
    return row.ablation.name + ("" if own == seeds else named)


def dots(ablations: Ablations) -> bytes:
    """Return a PNG with a dot and its 95 % interval per ablation and mode, the first at the top."""
    rows = ablations.rows
    figure = Figure(figsize=(9, 0.45 * len(rows) + 1.7), dpi=120, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    titles = {SEEN: "seen databases: choose", UNSEEN: "unseen databases: reported"}
    for axes, (part, title) in zip(panels, titles.items(), strict=True):
        for mode, aside in zip(MODES, (-ASIDE, ASIDE), strict=True):
            rates = [pooled(row, part, mode) for row in rows]
            _draw(axes, mode, aside, rates)
            if rows and rows[0].ablation is BASELINE and (value := rates[0].rate) is not None:
                axes.axvline(100 * value, color=COLOURS[MODE_COLOURS[mode]], lw=1, ls=":")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("success, %, with 95 % intervals")
        axes.grid(axis="x", alpha=0.25)
        axes.set_axisbelow(True)
    panels[0].set_yticks(range(len(rows)), [label(row, ablations.seeds) for row in rows])
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return png_bytes(figure)


def _draw(axes: Any, mode: str, aside: float, rates: list[Rate]) -> None:
    places = [(place, rate) for place, rate in enumerate(rates) if rate.rate is not None]
    values = [100 * (rate.rate or 0.0) for _, rate in places]
    ends = [[100 * end for end in rate.ci95] for _, rate in places]
    errors = [
        [max(0.0, value - low) for value, (low, _) in zip(values, ends, strict=True)],
        [max(0.0, high - value) for value, (_, high) in zip(values, ends, strict=True)],
    ]
    style: Mapping[str, Any] = {"fmt": "o", "ms": 5, "capsize": 3, "lw": 1.4}
    heights = [place + aside for place, _ in places]
    colour = COLOURS[MODE_COLOURS[mode]]
    axes.errorbar(values, heights, xerr=errors, color=colour, label=mode, **style)
