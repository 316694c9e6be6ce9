"""The charts of a run, from the rows of metrics.jsonl and the evaluations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.run_stats import MODES, Mode, Rate
from trainer.config import REWARD_WEIGHTS
from trainer.report.ledger import LAYERS
from trainer.report.run_reader import LoadedRun, Row
from trainer.report.svg import MAX_POINTS
from trainer.run.charts import Baseline, Chart, Point, Series, percent
from trainer.run.plots import SMOOTHING_STEPS, running_mean, series

COLOURS = {"train": "blue", "greedy": "orange", "sampled": "green", "random": "grey"}
MEAN = f"running mean of {SMOOTHING_STEPS} logged steps, of fewer at both ends"
SMOOTHED = f"Thick: {MEAN}; faint: as logged."
EPISODES = "training episodes"
TIME_PARTS = (
    ("generate_s", "generation", "blue"),
    ("env_wait_s", "waiting for the environment", "orange"),
    ("rank_wait_s", "waiting for other processes", "violet"),
    ("other_s", "rest of the rollout", "ochre"),
    ("update_s", "update", "green"),
)
Condition = Callable[[float, float, int, int], bool]
GROUP_KINDS: tuple[tuple[str, str, Condition], ...] = (
    ("all correct", "green", lambda low, high, correct, n: correct == n),
    ("none correct", "orange", lambda low, high, correct, n: correct == 0),
    ("all rewards equal: nothing to learn", "violet", lambda low, high, correct, n: low == high),
)


def curves(run: LoadedRun) -> list[Chart]:
    """Return the run's charts in the page's order; one without values is empty, and says why."""
    charts = [
        success(run),
        reward(run),
        reward_layers(run),
        _logged(run, "loss", "Policy loss", "loss", "policy gradient loss"),
        _logged(run, "entropy", "Entropy, nats per token", "entropy", "entropy", floor=0.0),
        kl(run),
        _logged(run, "grad-norm", "Gradient norm, before clipping", "grad_norm", "norm", floor=0.0),
        learning_rate(run),
        lengths(run),
        actions(run),
        errors(run),
        uniform_groups(run),
    ]
    longest = max((len(line.points) for chart in charts for line in chart.series), default=0)
    if longest <= MAX_POINTS:
        return charts
    thinning = f" Drawn as means of {-(-longest // MAX_POINTS)} neighbouring steps."
    return [
        replace(chart, note=chart.note + thinning) if chart.series else chart for chart in charts
    ]


def points(rows: Sequence[Row], key: str, scale: float = 1.0) -> list[Point]:
    return [Point(x, scale * y) for x, y in zip(*series(rows, key), strict=True)]


def smoothed(values: Sequence[Point]) -> list[Point]:
    means = running_mean([point.y for point in values])
    return [Point(point.x, mean) for point, mean in zip(values, means, strict=True)]


def _pair(
    rows: Sequence[Row], key: str, label: str, colour: str, scale: float = 1.0
) -> list[Series]:
    """Return a curve as logged, faint, and its running mean."""
    values = points(rows, key, scale)
    if not values:
        return []
    logged = Series(f"{label}, as logged", values, colour, "faint")
    return [logged, Series(label, smoothed(values), colour)]


def _logged(
    run: LoadedRun, key: str, title: str, name: str, label: str, *, floor: float | None = None
) -> Chart:
    lines = _pair(run.metrics, name, label, "blue")
    return Chart(key, title, lines, bounds=(floor, None), note=SMOOTHED)


def _whole_evaluations(run: LoadedRun) -> list[tuple[Mode, list[tuple[int, Mapping[str, Any]]]]]:
    """Return (mode, [(step, summary)]) of the evaluations before and after training."""
    steps = {"before": 0, "after": run.last_step}
    return [
        (mode, [(step, _summary(run, phase, mode)) for phase, step in steps.items()])
        for mode in MODES
    ]


def _summary(run: LoadedRun, phase: str, mode: str) -> Mapping[str, Any]:
    return run.summaries.get(phase, {}).get(mode, {})


def rate_of(
    run: LoadedRun, phase: str, mode: str, split: str = "overall"
) -> Mapping[str, Any] | None:
    """Return `{rate, n, ci95}` of an evaluation of the whole eval set; None if there is none."""
    rate = _summary(run, phase, mode).get(split)
    return rate if rate and rate.get("rate") is not None else None


def _baselines(run: LoadedRun, value: Callable[[str, str], float | None]) -> list[Baseline]:
    """Return lines for the untrained model and random actions; `value` takes phase and mode."""
    lines = [
        (f"untrained model, {mode}", value("before", mode), COLOURS[mode]) for mode in MODES
    ] + [("random actions", value("random", "sampled"), COLOURS["random"])]
    return [Baseline(label, y, colour) for label, y, colour in lines if y is not None]


def success(run: LoadedRun) -> Chart:
    """Success on training episodes, the eval curve's questions and, as diamonds, the eval set."""
    lines = _pair(run.metrics, "success", EPISODES, COLOURS["train"])
    size = max((row["eval_n"] for row in run.metrics if row.get("eval_n")), default="?")
    for mode in MODES:
        if values := _curve_points(run, mode):
            label = f"{size} eval questions, {mode}"
            lines.append(Series(label, values, COLOURS[mode], "dashed", band=True))
    for mode, summaries in _whole_evaluations(run):
        rates = [(step, one.get("overall", {})) for step, one in summaries]
        rates = [(step, rate) for step, rate in rates if rate.get("rate") is not None]
        if rates:
            marks = [Point(step, rate["rate"], *rate["ci95"]) for step, rate in rates]
            label = f"whole eval set, {mode} (n={rates[0][1]['n']})"
            lines.append(Series(label, marks, COLOURS[mode], "diamonds"))
    return Chart(
        "success",
        "Success: share of correct answers",
        lines,
        _baselines(run, lambda phase, mode: (rate_of(run, phase, mode) or {}).get("rate")),
        bounds=(0.0, 1.0),
        form=percent,
        note=f"{SMOOTHED} Areas and whiskers are 95 % Wilson intervals.",
    )


def _curve_points(run: LoadedRun, mode: str) -> list[Point]:
    """Return the eval curve's points with intervals, from the episodes or else the logged rate."""
    found = []
    for row in run.metrics:
        rate, n, step = row.get(f"eval_{mode}_success"), row.get("eval_n"), row["step"]
        if rate is not None and n:
            counted = run.curve_rates.get((step, mode)) or Rate(round(rate * n), n)
            found.append(Point(step, rate, *counted.ci95))
    return sorted(found, key=lambda point: point.x)


def reward(run: LoadedRun) -> Chart:
    lines = _pair(run.metrics, "reward", EPISODES, COLOURS["train"])
    for mode in MODES:
        if values := points(run.metrics, f"eval_{mode}_reward"):
            lines.append(Series(f"eval questions, {mode}", values, COLOURS[mode], "dashed"))
    baselines = _baselines(run, lambda phase, mode: _summary(run, phase, mode).get("mean_reward"))
    return Chart("reward", "Reward per episode", lines, baselines, note=SMOOTHED)


def reward_layers(run: LoadedRun) -> Chart:
    """The three layers of the training reward, as weighted in it."""
    lines = []
    colours = ("blue", "orange", "green")
    for name, weight, colour in zip(LAYERS, REWARD_WEIGHTS, colours, strict=True):
        label = name if weight == 1 else f"{weight:g} × {name}"
        lines += _pair(run.metrics, f"rewards/reward_{name}/mean", label, colour, weight)
    return Chart("reward-parts", "Reward by layer, training episodes", lines, note=SMOOTHED)


def kl(run: LoadedRun) -> Chart:
    chart = _logged(
        run, "kl", "KL divergence from the start", "kl", "KL to the reference model", floor=0.0
    )
    if chart.series:
        return chart
    reason = "The run logged no KL divergence"
    if run.config.get("beta") == 0:
        reason += ": beta is 0, so the loss has no KL term and there is no reference model"
    return replace(chart, absent=f"{reason}.")


def learning_rate(run: LoadedRun) -> Chart:
    lines = [Series("learning rate", points(run.metrics, "learning_rate"), "blue")]
    return Chart("learning-rate", "Learning rate", lines, bounds=(0.0, None), note="As logged.")


def lengths(run: LoadedRun) -> Chart:
    """Mean completion lengths, within the range of the shortest and the longest."""
    lows, highs = (
        dict(zip(*series(run.metrics, f"completions/{end}_length"), strict=True))
        for end in ("min", "max")
    )
    mean = [
        replace(point, low=lows.get(point.x), high=highs.get(point.x))
        for point in points(run.metrics, "completions/mean_length")
    ]
    return Chart(
        "lengths",
        "Tokens per training episode, after the prompt",
        [Series("mean; area: shortest to longest", mean, "blue", band=True)],
        bounds=(0.0, None),
        note="As logged. Counts the tokens of the model and of the observations.",
    )


def actions(run: LoadedRun) -> Chart:
    lines = _pair(run.metrics, "steps_per_episode", EPISODES, COLOURS["train"])
    for mode, summaries in _whole_evaluations(run):
        means = [(step, one.get("mean_steps")) for step, one in summaries]
        if marks := [Point(step, mean) for step, mean in means if mean is not None]:
            lines.append(Series(f"whole eval set, {mode}", marks, COLOURS[mode], "diamonds"))
    return Chart("steps", "Actions per episode", lines, bounds=(0.0, None), note=SMOOTHED)


def errors(run: LoadedRun) -> Chart:
    """What went wrong per episode: environment errors, texts without an action, lost episodes."""
    lines = []
    for name, label, colour in (
        ("env_errors", "environment errors", "orange"),
        ("parse_failures", "texts that hold no action", "green"),
        ("episodes_lost", "lost to infrastructure", "violet"),
    ):
        rates = [
            Point(row["step"], row[name] / row["episodes"])
            for row in run.metrics
            if row.get("episodes") and row.get(name) is not None
        ]
        lines.append(Series(label, smoothed(rates), colour))
    title = "Errors per training episode"
    return Chart("errors", title, lines, bounds=(0.0, None), note=f"{MEAN.capitalize()}.")


def uniform_groups(run: LoadedRun) -> Chart:
    """How many groups can't teach: where all rewards are equal there is no advantage."""
    steps = [(number, step) for number, step in sorted(run.steps.items()) if step.questions]
    lines = [
        Series(label, smoothed([Point(x, step.share(condition)) for x, step in steps]), colour)
        for label, colour, condition in GROUP_KINDS
    ]
    note = f"Share of the step's questions. {MEAN.capitalize()}."
    return Chart(
        "uniform-groups",
        "Groups without contrast",
        lines,
        bounds=(0.0, 1.0),
        form=percent,
        note=note,
    )


def time_split(run: LoadedRun) -> tuple[Chart, list[tuple[str, float]]]:
    """Where training's seconds went, per step as a chart and in total as (label, seconds).

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
