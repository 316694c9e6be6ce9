"""Which charts a run gives: from the rows of metrics.jsonl and the evaluations to `charts.Chart`s.
Pure functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.run_stats import MODES, Rate
from trainer.config import REWARD_WEIGHTS
from trainer.report.charts import MAX_POINTS, Baseline, Chart, Point, Series, percent
from trainer.report.source import Record
from trainer.run.plots import SMOOTHING_STEPS, running_mean, series

COLOURS = {"train": "c1", "greedy": "c2", "sampled": "c3", "random": "c0"}
SMOOTHED = f"Thick: running mean of {SMOOTHING_STEPS} logged steps, of fewer at both ends; faint: as logged."
TIME_PARTS = (
    ("generate_s", "generation", "c1"),
    ("env_wait_s", "waiting for the environment", "c2"),
    ("rank_wait_s", "waiting for other processes", "c5"),
    ("other_s", "rest of the rollout", "c4"),
    ("update_s", "update", "c3"),
)


def curves(record: Record) -> list[Chart]:
    """The run's charts in the order of the page. One that has nothing to show is left empty, and
    says why."""
    made = [
        success(record),
        reward(record),
        reward_parts(record),
        _smoothed(record, "loss", "Loss", "loss", "loss of the policy gradient"),
        _smoothed(record, "entropy", "Entropy, nats a token", "entropy", "entropy", floor=0.0),
        kl(record),
        _smoothed(
            record,
            "grad-norm",
            "Gradient norm, before clipping",
            "grad_norm",
            "gradient norm",
            floor=0.0,
        ),
        learning_rate(record),
        lengths(record),
        steps(record),
        trouble(record),
        contrast(record),
    ]
    longest = max((len(one.points) for chart in made for one in chart.series), default=0)
    if longest <= MAX_POINTS:
        return made
    thin = f" Drawn as means of {-(-longest // MAX_POINTS)} neighbouring steps."
    return [
        Chart(**{**chart.__dict__, "note": chart.note + thin}) if chart.series else chart
        for chart in made
    ]


def points(rows: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> list[Point]:
    return [Point(x, scale * y) for x, y in zip(*series(rows, key), strict=True)]


def smoothed(found: Sequence[Point]) -> list[Point]:
    means = running_mean([point.y for point in found])
    return [Point(point.x, mean) for point, mean in zip(found, means, strict=True)]


def _pair(
    rows: Sequence[Mapping[str, Any]], key: str, label: str, colour: str, scale: float = 1.0
) -> list[Series]:
    """A curve as logged, faint, and its running mean."""
    found = points(rows, key, scale)
    if not found:
        return []
    return [
        Series(f"{label}, as logged", found, colour, "faint"),
        Series(label, smoothed(found), colour),
    ]


def _smoothed(
    record: Record,
    key: str,
    title: str,
    name: str,
    label: str,
    *,
    floor: float | None = None,
    note: str = SMOOTHED,
) -> Chart:
    return Chart(
        key, title, _pair(record.metrics, name, label, "c1"), bounds=(floor, None), note=note
    )


def success(record: Record) -> Chart:
    """Of the training episodes, of the eval curve's few questions and, with diamonds, of the whole
    eval set."""
    made = _pair(record.metrics, "success", "training episodes", COLOURS["train"])
    baselines = []
    for mode in MODES:
        few = _small(record, mode)
        if few:
            size = max((row["eval_n"] for row in record.metrics if row.get("eval_n")), default="?")
            made.append(
                Series(f"{size} eval questions, {mode}", few, COLOURS[mode], "dashed", band=True)
            )
    for mode in MODES:
        whole = [
            (step, rate)
            for phase, step in (("before", 0), ("after", record.last_step))
            if (rate := rate_of(record, phase, mode)) is not None
        ]
        if whole:
            n = whole[0][1]["n"]
            marks = [Point(step, one["rate"], *one["ci95"]) for step, one in whole]
            made.append(Series(f"whole eval set, {mode} (n={n})", marks, COLOURS[mode], "diamonds"))
        before = rate_of(record, "before", mode)
        if before is not None:
            baselines.append(Baseline(f"untrained model, {mode}", before["rate"], COLOURS[mode]))
    random = rate_of(record, "random", "sampled")
    if random is not None:
        baselines.append(Baseline("random actions", random["rate"], COLOURS["random"]))
    return Chart(
        "success",
        "Success: share of right answers",
        made,
        baselines,
        bounds=(0.0, 1.0),
        form=percent,
        note=f"{SMOOTHED} Areas and whiskers are 95 % Wilson intervals.",
    )


def _small(record: Record, mode: str) -> list[Point]:
    """The eval curve's points with their intervals, by the episodes, else by the logged rate and
    number."""
    found = []
    for row in record.metrics:
        rate, n, step = row.get(f"eval_{mode}_success"), row.get("eval_n"), row["step"]
        if rate is None or not n:
            continue
        counted = record.small.get((step, mode)) or Rate(round(rate * n), n)
        found.append(Point(step, rate, *counted.ci95))
    return sorted(found, key=lambda point: point.x)


def rate_of(
    record: Record, phase: str, mode: str, part: str = "overall"
) -> Mapping[str, Any] | None:
    """`{rate, n, ci95}` of a measurement of the whole eval set; None where there is none."""
    rate = record.summaries.get(phase, {}).get(mode, {}).get(part)
    return rate if rate and rate.get("rate") is not None else None


def reward(record: Record) -> Chart:
    made = _pair(record.metrics, "reward", "training episodes", COLOURS["train"])
    baselines = []
    for mode in MODES:
        few = points(record.metrics, f"eval_{mode}_reward")
        if few:
            made.append(Series(f"eval questions, {mode}", few, COLOURS[mode], "dashed"))
        before = record.summaries.get("before", {}).get(mode, {}).get("mean_reward")
        if before is not None:
            baselines.append(Baseline(f"untrained model, {mode}", before, COLOURS[mode]))
    random = record.summaries.get("random", {}).get("sampled", {}).get("mean_reward")
    if random is not None:
        baselines.append(Baseline("random actions", random, COLOURS["random"]))
    return Chart("reward", "Reward an episode", made, baselines, note=SMOOTHED)


def reward_parts(record: Record) -> Chart:
    """The three layers of the training reward, as weighted in it."""
    made = []
    for name, weight, colour in zip(("correctness", "progress", "operational"), REWARD_WEIGHTS, ("c1", "c2", "c3"),
                                    strict=True):  # fmt: skip
        label = name if weight == 1 else f"{weight:g} × {name}"
        made += _pair(record.metrics, f"rewards/reward_{name}/mean", label, colour, weight)
    return Chart("reward-parts", "Reward by layer, of the training episodes", made, note=SMOOTHED)


def kl(record: Record) -> Chart:
    beta = record.config.get("beta")
    absent = "The run logged no KL divergence"
    if beta == 0:
        absent += ": beta is 0, so the loss has no KL term and no reference model is kept"
    found = _pair(record.metrics, "kl", "KL to the reference model", "c1")
    return Chart(
        "kl",
        "KL divergence to the start",
        found,
        bounds=(0.0, None),
        note=SMOOTHED if found else f"{absent}.",
    )


def learning_rate(record: Record) -> Chart:
    found = points(record.metrics, "learning_rate")
    made = [Series("learning rate", found, "c1")] if found else []
    return Chart("learning-rate", "Learning rate", made, bounds=(0.0, None), note="As logged.")


def lengths(record: Record) -> Chart:
    """Mean completion lengths, within the range of the shortest and the longest."""
    ends = [
        dict(zip(*series(record.metrics, f"completions/{end}_length"), strict=True))
        for end in ("min", "max")
    ]
    mean = points(record.metrics, "completions/mean_length")
    ranged = [Point(one.x, one.y, ends[0].get(one.x), ends[1].get(one.x)) for one in mean]
    made = [Series("mean; area: shortest to longest", ranged, "c1", band=True)] if mean else []
    return Chart(
        "lengths",
        "Tokens of an episode after its prompt, of the training episodes",
        made,
        bounds=(0.0, None),
        note="As logged. Of the model and of the environment together: observations count.",
    )


def steps(record: Record) -> Chart:
    made = _pair(record.metrics, "steps_per_episode", "training episodes", COLOURS["train"])
    for mode in MODES:
        marks = [
            Point(step, value)
            for phase, step in (("before", 0), ("after", record.last_step))
            if (value := record.summaries.get(phase, {}).get(mode, {}).get("mean_steps"))
            is not None
        ]
        if marks:
            made.append(Series(f"whole eval set, {mode}", marks, COLOURS[mode], "diamonds"))
    return Chart("steps", "Actions an episode", made, bounds=(0.0, None), note=SMOOTHED)


def trouble(record: Record) -> Chart:
    """What went wrong an episode: errors of the environment, texts that were no action, lost
    episodes."""
    made = []
    for name, label, colour in (
        ("env_errors", "errors of the environment", "c2"),
        ("parse_failures", "texts that were no action", "c3"),
        ("episodes_lost", "lost to infrastructure", "c5"),
    ):
        found = [
            Point(row["step"], row[name] / row["episodes"])
            for row in record.metrics
            if row.get("episodes") and row.get(name) is not None
        ]
        if found:
            made.append(Series(label, smoothed(found), colour))
    note = f"Running mean of {SMOOTHING_STEPS} logged steps, of fewer at both ends."
    return Chart(
        "trouble",
        "Errors an episode, of the training episodes",
        made,
        bounds=(0.0, None),
        note=note,
    )


def contrast(record: Record) -> Chart:
    """How many groups teach: one in which all rewards are equal has no advantage to learn from."""
    kinds = (
        ("all right", "c3", lambda low, high, right, n: right == n),
        ("none right", "c2", lambda low, high, right, n: right == 0),
        ("all rewards equal: nothing to learn", "c5", lambda low, high, right, n: low == high),
    )
    made = []
    for label, colour, of in kinds:
        found = [
            Point(step, batch.share(of))
            for step, batch in sorted(record.batches.items())
            if batch.questions
        ]
        if found:
            made.append(Series(label, smoothed(found), colour))
    note = f"Share of the step's questions. Running mean of {SMOOTHING_STEPS} steps, of fewer at both ends."
    return Chart(
        "contrast", "Groups without contrast", made, bounds=(0.0, 1.0), form=percent, note=note
    )


def time_split(record: Record) -> tuple[Chart, list[tuple[str, float]]]:
    """Where training's seconds went, a step and in sum: (label, seconds). The parts add up to
    rollout and update."""
    found: dict[str, list[Point]] = {name: [] for name, _, _ in TIME_PARTS}
    totals = dict.fromkeys(found, 0.0)
    for row in record.metrics:
        if row.get("rollout_s") is None or row.get("update_s") is None:
            continue
        parts = {name: float(row.get(name) or 0.0) for name in found}
        known = parts["generate_s"] + parts["env_wait_s"] + parts["rank_wait_s"]
        parts["other_s"] = max(0.0, float(row["rollout_s"]) - known)
        for name, value in parts.items():
            found[name].append(Point(row["step"], value))
            totals[name] += value
    made = [
        Series(label, found[name], colour)
        for name, label, colour in TIME_PARTS
        if any(p.y for p in found[name])
    ]
    chart = Chart(
        "time",
        "Seconds of each logged step",
        made,
        bounds=(0.0, None),
        stacked=True,
        note="As logged.",
    )
    return chart, [(label, totals[name]) for name, label, _ in TIME_PARTS if totals[name]]
