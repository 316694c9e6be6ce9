"""The charts of a run, from the rows of metrics.jsonl and the evaluations."""

from dataclasses import replace
from typing import Any

from shared.console import percent
from shared.run_stats import MODES
from trainer.config import REWARD_WEIGHTS
from trainer.report.run_reader import LoadedRun
from trainer.report.svg import MAX_POINTS
from trainer.run.charts import Chart, Point, Series
from trainer.run.plots import (
    COLOURS,
    EPISODES,
    RUNNING,
    SMOOTHED,
    logged_and_mean,
    points,
    reward_chart,
    smoothed,
    success_chart,
    weighted,
)

TIME_PARTS = (
    ("generate_s", "generation", "blue"),
    ("env_wait_s", "waiting for the environment", "orange"),
    ("rank_wait_s", "waiting for other processes", "violet"),
    ("other_s", "rest of the rollout", "ochre"),
    ("update_s", "update", "green"),
)
EQUAL = "all rewards equal: nothing to learn"
NO_KL = "The run logged no KL divergence: beta is 0, so the loss has no KL term."


def curves(run: LoadedRun) -> list[Chart]:
    """Return the run's charts in the page's order; one without values is empty, and says why."""
    rate = Series("learning rate", points(run.metrics, "learning_rate"), "blue")
    absent: dict[str, Any] = {"absent": NO_KL} if run.config.get("beta") == 0 else {}
    charts = [
        success_chart(run.metrics, run.summaries, run.last_step),
        reward_chart(run.metrics, run.summaries),
        reward_layers(run),
        _logged(run, "loss", "Policy loss", "policy gradient loss", least=None),
        _logged(run, "entropy", "Entropy, nats per token", "entropy"),
        _logged(run, "kl", "KL divergence from the start", "KL to the reference model", **absent),
        _logged(run, "grad_norm", "Gradient norm, before clipping", "norm"),
        Chart("learning-rate", "Learning rate", [rate], bounds=(0.0, None), note="As logged."),
        lengths(run),
        actions(run),
        errors(run),
        uniform_groups(run),
    ]
    longest = max((len(line.points) for chart in charts for line in chart.series), default=0)
    if longest <= MAX_POINTS:
        return charts
    thinning = f" Drawn as means of {-(-longest // MAX_POINTS)} neighbouring steps."
    return [replace(one, note=one.note + thinning) if one.series else one for one in charts]


def _logged(
    run: LoadedRun, name: str, title: str, label: str, *, least: float | None = 0.0, **more: Any
) -> Chart:
    lines = logged_and_mean(points(run.metrics, name), label, "blue")
    key = name.replace("_", "-")
    return Chart(key, title, lines, bounds=(least, None), note=SMOOTHED, **more)


def reward_layers(run: LoadedRun) -> Chart:
    """Return the three layers of the training reward, as weighted in it."""
    lines = []
    colours = ("blue", "orange", "green")
    for (name, weight), colour in zip(REWARD_WEIGHTS.items(), colours, strict=True):
        values = points(run.metrics, f"rewards/reward_{name}/mean", weight)
        lines += logged_and_mean(values, weighted(name), colour)
    return Chart("reward-parts", "Reward by layer, training episodes", lines, note=SMOOTHED)


def lengths(run: LoadedRun) -> Chart:
    """Return mean completion lengths, with the range of the shortest and the longest."""
    lows, highs = (
        {point.x: point.y for point in points(run.metrics, f"completions/{end}_length")}
        for end in ("min", "max")
    )
    mean = [
        replace(point, low=lows.get(point.x), high=highs.get(point.x))
        for point in points(run.metrics, "completions/mean_length")
    ]
    return Chart(
        "lengths",
        "Tokens that the model wrote per training episode",
        [Series("mean; area: shortest to longest", mean, "blue", band=True)],
        bounds=(0.0, None),
        note="As logged. Tokens of observations are not counted.",
    )


def actions(run: LoadedRun) -> Chart:
    lines = logged_and_mean(points(run.metrics, "steps_per_episode"), EPISODES, COLOURS["train"])
    for mode in MODES:
        marks = [
            Point(step, mean)
            for phase, step in (("before", 0), ("after", run.last_step))
            if (mean := run.summaries.get(phase, {}).get(mode, {}).get("mean_steps")) is not None
        ]
        if marks:
            lines.append(Series(f"before and after, {mode}", marks, COLOURS[mode], "diamonds"))
    return Chart("steps", "Actions per episode", lines, bounds=(0.0, None), note=SMOOTHED)


def errors(run: LoadedRun) -> Chart:
    """Return what went wrong per episode: environment errors, parse failures, losses."""
    lines = []
    for name, label, colour in (
        ("env_errors", "environment errors", "orange"),
        ("parse_failures", "parse failures", "green"),
        ("episodes_lost", "lost to infrastructure", "violet"),
    ):
        rates = [
            Point(row["step"], row[name] / row["episodes"])
            for row in run.metrics
            if row.get("episodes") and row.get(name) is not None
        ]
        lines.append(Series(label, smoothed(rates), colour, band=True))
    note = f"Parse failures: texts without an action. {RUNNING}"
    return Chart("errors", "Errors per training episode", lines, bounds=(0.0, None), note=note)


def uniform_groups(run: LoadedRun) -> Chart:
    """Return the share of groups that can't teach: equal rewards give no advantage."""
    lines = []
    for label, colour, has in (
        ("all correct", "green", lambda group: all(correct for _, correct in group)),
        ("none correct", "orange", lambda group: not any(correct for _, correct in group)),
        (EQUAL, "violet", lambda group: len({reward for reward, _ in group}) == 1),
    ):
        shares = [
            Point(step, sum(map(has, groups.values())) / len(groups))
            for step, groups in sorted(run.steps.items())
            if groups
        ]
        lines.append(Series(label, smoothed(shares), colour, band=True))
    return Chart(
        "uniform-groups",
        "Groups with one verdict",
        lines,
        bounds=(0.0, 1.0),
        form=percent,
        note=f"Share of the step's questions. {RUNNING}",
    )


def time_split(run: LoadedRun) -> tuple[Chart, list[tuple[str, float]]]:
    """Return the seconds of training by activity: a chart per step, and totals (label, seconds).

    The parts add up to rollout and update.
    """
    seconds: dict[str, list[Point]] = {name: [] for name, _, _ in TIME_PARTS}
    for row in run.metrics:
        if row.get("rollout_s") is None or row.get("update_s") is None:
            continue
        parts = {name: float(row.get(name) or 0.0) for name in seconds}
        known = parts["generate_s"] + parts["env_wait_s"] + parts["rank_wait_s"]
        parts["other_s"] = max(0.0, float(row["rollout_s"]) - known)
        for name, value in parts.items():
            seconds[name].append(Point(row["step"], value))
    lines = [
        Series(label, seconds[name], colour)
        for name, label, colour in TIME_PARTS
        if any(point.y for point in seconds[name])
    ]
    title = "Seconds of each logged step"
    chart = Chart("time", title, lines, bounds=(0.0, None), stacked=True, note="As logged.")
    return chart, [(line.label, sum(point.y for point in line.points)) for line in lines]
