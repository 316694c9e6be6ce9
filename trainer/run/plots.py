"""Success and reward over the training steps: the curves of learning_curve.png and the report."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shared.console import percent
from shared.run_stats import MODES, wilson_interval
from trainer.config import REWARD_WEIGHTS
from trainer.run.charts import Baseline, Chart, Point, Series, png

COLOURS = {"train": "blue", "greedy": "orange", "sampled": "green", "random": "grey"}
SMOOTHING_STEPS = 9  # window of the running mean
MEAN = f"running mean of {SMOOTHING_STEPS} logged steps, of fewer at both ends"
BAND = "its 95 % t interval, each step counted as one value"
SMOOTHED = f"Line: {MEAN}; its area: {BAND}; dots: as logged."
TEMPERATURES = "Training episodes are sampled at the run's temperature, sampled evaluations at 1."
EPISODES = "training episodes"

# two-sided 95 % quantiles of Student's t, by the number of values in a window
T_95 = {5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306}

Row = Mapping[str, Any]  # of metrics.jsonl
Summaries = Mapping[str, Mapping[str, Mapping[str, Any]]]  # phase -> mode -> measurement


def points(rows: Sequence[Row], key: str, scale: float = 1.0) -> list[Point]:
    """Return the finite values of `key`, scaled, by their steps; the last row of a step wins."""
    values = {
        float(row["step"]): scale * float(row[key])
        for row in rows
        if isinstance(row.get(key), (int, float)) and math.isfinite(row[key]) and "step" in row
    }
    return [Point(step, values[step]) for step in sorted(values)]


def smoothed(values: Sequence[Point]) -> list[Point]:
    """Return the mean of the `SMOOTHING_STEPS` values around each, of fewer at both ends, and its
    95 % t interval. There are at least `SMOOTHING_STEPS` values.

    A step counts as one value, as the episodes of a question are alike: the interval of a share of
    episodes would be too narrow.
    """
    half, means = SMOOTHING_STEPS // 2, []
    for index, point in enumerate(values):
        near = [one.y for one in values[max(0, index - half) : index + half + 1]]
        mean = statistics.fmean(near)
        error = T_95[len(near)] * statistics.stdev(near) / math.sqrt(len(near))
        means.append(Point(point.x, mean, mean - error, mean + error))
    return means


def logged_and_mean(values: Sequence[Point], label: str, colour: str) -> list[Series]:
    """Return a curve as logged, as faint dots, and its running mean with its band; without the mean
    if there are fewer values than its window has."""
    if len(values) < SMOOTHING_STEPS:
        return [Series(label, values, colour, "marked")] if values else []
    logged = Series(f"{label}, as logged", values, colour, "faint")
    return [logged, Series(label, smoothed(values), colour, band=True)]


def smoothing_note(lines: Sequence[Series]) -> str:
    """Return what a chart with `logged_and_mean` says of its running means, if it has any."""
    return SMOOTHED if any(one.kind == "faint" for one in lines) else ""


def success_chart(rows: Sequence[Row], summaries: Summaries, last_step: int) -> Chart:
    """Success on training episodes, the eval curve's questions and, as diamonds, the eval set.

    `after` is drawn at `last_step`.
    """
    lines = logged_and_mean(points(rows, "success"), EPISODES, COLOURS["train"])
    for mode in MODES:
        if values := curve_points(rows, mode):
            lines.append(Series(curve_label(rows, mode), values, COLOURS[mode], "dashed"))
    for mode in MODES:
        rates = [
            (step, rate)
            for phase, step in (("before", 0), ("after", last_step))
            if (rate := rate_of(summaries, phase, mode)) is not None
        ]
        if rates:
            marks = [Point(step, rate["rate"], *rate["ci95"]) for step, rate in rates]
            label = f"before and after, {mode} (n={rates[0][1]['n']})"
            lines.append(Series(label, marks, COLOURS[mode], "diamonds"))
    return Chart(
        "success",
        "Success: share of correct answers",
        lines,
        _baselines(lambda phase, mode: (rate_of(summaries, phase, mode) or {}).get("rate")),
        bounds=(0.0, 1.0),
        form=percent,
        note=f"{smoothing_note(lines)} Whiskers: 95 % Wilson intervals. {TEMPERATURES}".lstrip(),
    )


def reward_chart(rows: Sequence[Row], summaries: Summaries) -> Chart:
    lines = logged_and_mean(points(rows, "reward"), EPISODES, COLOURS["train"])
    for mode in MODES:
        if values := points(rows, f"eval_{mode}_reward"):
            lines.append(Series(curve_label(rows, mode), values, COLOURS[mode], "dashed"))
    baselines = _baselines(lambda phase, mode: _of(summaries, phase, mode).get("mean_reward"))
    return Chart("reward", "Reward per episode", lines, baselines, note=smoothing_note(lines))


def weighted(layer: str) -> str:
    """Return the name of a layer of the reward, with its weight unless that is 1."""
    weight = REWARD_WEIGHTS[layer]
    return layer if weight == 1 else f"{weight:g} × {layer}"


def curve_label(rows: Sequence[Row], mode: str) -> str:
    """Return the name of the eval curve, with its number of questions."""
    size = max((row["eval_n"] for row in rows if row.get("eval_n")), default="?")
    return f"{size} eval questions, {mode}"


def rate_of(
    summaries: Summaries, phase: str, mode: str, part: str = "overall"
) -> Mapping[str, Any] | None:
    """Return `{rate, n, ci95}` of an evaluation of the whole eval set; None if there is none."""
    rate = _of(summaries, phase, mode).get(part)
    return rate if rate and rate["rate"] is not None else None


def _of(summaries: Summaries, phase: str, mode: str) -> Mapping[str, Any]:
    return summaries.get(phase, {}).get(mode, {})


def _baselines(value: Callable[[str, str], float | None]) -> list[Baseline]:
    """Return lines for random actions and before training; `value` takes phase and mode."""
    lines = [
        (f"before training, {mode}", value("before", mode), COLOURS[mode]) for mode in MODES
    ] + [("random actions", value("random", "sampled"), COLOURS["random"])]
    return [Baseline(label, y, colour) for label, y, colour in lines if y is not None]


def curve_points(rows: Sequence[Row], mode: str) -> list[Point]:
    """Return the eval curve's points with their intervals."""
    found = []
    for row in rows:
        rate, n = row.get(f"eval_{mode}_success"), row.get("eval_n")
        if rate is not None and n:
            found.append(Point(row["step"], rate, *wilson_interval(round(rate * n), n)))
    return sorted(found, key=lambda point: point.x)


def headline(name: str, seed: int, summaries: Summaries) -> str:
    """Return a title for a run's charts: its result, once the model after training is measured."""
    changes = [
        f"{mode} {percent(before['rate'])} → {percent(after['rate'])}"
        for mode in MODES
        if (before := rate_of(summaries, "before", mode))
        and (after := rate_of(summaries, "after", mode))
    ]
    result = f": success {', '.join(changes)}" if changes else ""
    return f"GRPO of {name}, seed {seed}{result}"


def learning_curve(
    rows: Sequence[Row], summaries: Summaries, *, title: str, steps: int = 0
) -> bytes:
    """Return a PNG of two charts over the training steps: success and reward.

    `rows` are those of metrics.jsonl, `summaries` the evaluations of summary.json; any may be
    missing. `steps` is the last step, where `after` is drawn.
    """
    charts = [success_chart(rows, summaries, steps), reward_chart(rows, summaries)]
    return png(charts, title, dpi=120)
