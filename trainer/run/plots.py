"""The learning curve as a PNG. Reads rows of metrics.jsonl, draws with matplotlib's file backend,
needs no display."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

TRAIN, GREEDY, SAMPLED, RANDOM = "#1f77b4", "#d62728", "#2ca02c", "#7f7f7f"
SMOOTHING_STEPS = 9  # window of the running mean

Row = Mapping[str, Any]
Rates = Mapping[str, Any]  # mode -> {"overall": {"rate", "n", "ci95"}, ...}, as in summary.json


def series(rows: Sequence[Row], key: str) -> tuple[list[float], list[float]]:
    """Steps and finite values of `key`, by step; a later row wins over an earlier one of the same
    step."""
    points = {
        float(row["step"]): float(row[key])
        for row in rows
        if isinstance(row.get(key), (int, float)) and math.isfinite(row[key]) and "step" in row
    }
    steps = sorted(points)
    return steps, [points[step] for step in steps]


def running_mean(values: Sequence[float], window: int = SMOOTHING_STEPS) -> list[float]:
    """The mean of the `window` values around each; of fewer at both ends."""
    half = window // 2
    means = []
    for index in range(len(values)):
        near = values[max(0, index - half) : index + half + 1]
        means.append(sum(near) / len(near))
    return means


def _last(rows: Sequence[Row], key: str) -> Any:
    return next((row[key] for row in reversed(rows) if key in row), "?")


def _curve(axes: Axes, rows: Sequence[Row], key: str, label: str) -> None:
    steps, values = series(rows, key)
    if not steps:
        return
    axes.plot(steps, values, color=TRAIN, alpha=0.3, linewidth=1, marker=".", markersize=3)
    axes.plot(steps, running_mean(values), color=TRAIN, linewidth=2, label=label)


def _eval_curve(axes: Axes, rows: Sequence[Row], key: str, label: str, colour: str) -> None:
    steps, values = series(rows, key)
    if steps:
        axes.plot(
            steps,
            values,
            color=colour,
            linewidth=1.2,
            marker="o",
            markersize=4,
            linestyle="--",
            label=label,
        )


def _whole_evals(
    axes: Axes, points: Sequence[tuple[float, Rates | None]], last_step: float
) -> None:
    """A diamond with its interval for every (step, evaluation over the whole set), one legend entry
    a mode."""
    shift = 0.005 * max(1.0, last_step)  # the modes stand side by side
    for mode, colour, offset in (("greedy", GREEDY, -shift), ("sampled", SAMPLED, shift)):
        label: str | None = f"whole eval set, {mode}"
        for step, rates in points:
            overall = (rates or {}).get(mode, {}).get("overall")
            if overall and overall["rate"] is not None:
                low, high = overall["ci95"]
                error = [[overall["rate"] - low], [high - overall["rate"]]]
                axes.errorbar(
                    [step + offset],
                    [overall["rate"]],
                    error,
                    color=colour,
                    capsize=4,
                    fmt="none",
                    zorder=4,
                )
                shown = f"{label} (n={overall['n']}, 95 % interval)" if label else None
                _diamond(axes, step + offset, overall["rate"], colour, shown)
                label = None


def _whole_rewards(axes: Axes, points: Sequence[tuple[float, Rates | None]]) -> None:
    for mode, colour in (("greedy", GREEDY), ("sampled", SAMPLED)):
        label: str | None = f"whole eval set, {mode}"
        for step, rates in points:
            reward = (rates or {}).get(mode, {}).get("mean_reward")
            if reward is not None:
                _diamond(axes, step, reward, colour, label)
                label = None


def _diamond(axes: Axes, x: float, y: float, colour: str, label: str | None) -> None:
    axes.plot(
        [x],
        [y],
        color=colour,
        marker="D",
        markersize=7,
        markeredgecolor="black",
        linestyle="",
        label=label,
        zorder=5,
    )


def learning_curve(
    rows: Sequence[Row],
    *,
    title: str,
    random: Rates | None = None,
    before: Rates | None = None,
    after: Rates | None = None,
    steps: int = 0,
) -> bytes:
    """A PNG of two panels over the training steps: success, and reward.

    `rows` are those of metrics.jsonl (`step`, `reward`, `success`, `eval_greedy_success`,
    `eval_sampled_reward`, ...). `random`, `before` and `after` are evaluations over the whole set,
    in the form of summary.json; any may be missing, as in a run under way. `steps` is the last
    step, where `after` is drawn.
    """
    figure = Figure(figsize=(10, 8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title)

    _curve(top, rows, "success", "train episodes, sampled (running mean)")
    small = f"eval subset (n={_last(rows, 'eval_n')})"
    _eval_curve(top, rows, "eval_greedy_success", f"{small}, greedy", GREEDY)
    _eval_curve(top, rows, "eval_sampled_success", f"{small}, sampled", SAMPLED)
    _whole_evals(top, [(0, before), (steps, after)], steps)
    baseline = (random or {}).get("sampled", {}).get("overall")
    if baseline and baseline["rate"] is not None:
        top.axhline(
            baseline["rate"],
            color=RANDOM,
            linestyle=":",
            label=f"random actions ({baseline['rate']:.1%})",
        )
    top.set_ylim(-0.03, 1.03)
    top.set_ylabel("success: share of right answers")

    _curve(bottom, rows, "reward", "train episodes (running mean)")
    _eval_curve(bottom, rows, "eval_greedy_reward", f"{small}, greedy", GREEDY)
    _eval_curve(bottom, rows, "eval_sampled_reward", f"{small}, sampled", SAMPLED)
    _whole_rewards(bottom, [(0, before), (steps, after)])
    random_reward = (random or {}).get("sampled", {}).get("mean_reward")
    if random_reward is not None:
        bottom.axhline(
            random_reward,
            color=RANDOM,
            linestyle=":",
            label=f"random actions ({random_reward:.2f})",
        )
    bottom.set_ylabel("reward an episode")
    bottom.set_xlabel("GRPO step")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))

    for axes in (top, bottom):
        axes.grid(alpha=0.25)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
        else:
            axes.text(
                0.5, 0.5, "nothing logged yet", transform=axes.transAxes, ha="center", color=RANDOM
            )
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    return picture.getvalue()
