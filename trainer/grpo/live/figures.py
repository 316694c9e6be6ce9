"""The live view's plots as PNGs, by matplotlib's file backend: no display is needed."""

import io
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from trainer.grpo.live.scene import (
    INTERVAL,
    Curve,
    Level,
    Scene,
    job_curve,
    level_text,
    reward_curves,
    reward_levels,
    success_curves,
    success_levels,
)
from trainer.run.plots import GREEDY, RANDOM, TRAIN

UNTRAINED, JOB = "#8c564b", "#9467bd"
LEVELS = {"random": (RANDOM, ":"), "untrained": (UNTRAINED, "--")}
PANEL_INCHES = (6.4, 4.2)


def reward_panel(axes: Axes, scene: Scene) -> None:
    """Reward of the rollouts over the steps, smoothed, with its band and the baselines."""
    raw, smooth = reward_curves(scene)
    axes.plot(
        raw.steps,
        raw.values,
        color=TRAIN,
        alpha=0.35,
        linewidth=0.8,
        marker=".",
        markersize=4,
        label=raw.label,
    )
    _banded(axes, smooth, TRAIN, "-", "")
    _levels(axes, reward_levels(scene), ".2f", "eval set, sampled")
    low, high = reward_limits(scene)
    axes.set_ylim(low, high)
    _finish(
        axes, scene, "Reward of the training rollouts", "reward an episode", empty=not raw.steps
    )


def success_panel(axes: Axes, scene: Scene) -> None:
    """Success on a few questions of train and of eval, with bands and the baselines."""
    curves = success_curves(scene)
    for split, colour, marker in (("train", TRAIN, "o"), ("eval", GREEDY, "s")):
        _banded(axes, curves[split], colour, "-", marker)
    if (curve := job_curve(scene)) is not None:
        _banded(axes, curve, JOB, "--", "D")
    _levels(axes, success_levels(scene), ".1%", "eval set")
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    title = f"Success on train and eval ({INTERVAL})"
    _finish(
        axes,
        scene,
        title,
        "share of right answers",
        empty=not any(one.steps for one in curves.values()),
    )


def picture(
    scene: Scene, panels: Sequence[Callable[[Axes, Scene], None]] = (reward_panel, success_panel)
) -> bytes:
    """A PNG of the panels side by side."""
    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(panels), height), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{scene.title}: step {scene.step} of {scene.steps}", fontsize=11)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes, scene)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def reward_limits(scene: Scene) -> tuple[float, float]:
    """The reward axis: all values and baselines, with a margin. Not the bands, which begin far
    wider than any value."""
    raw, _ = reward_curves(scene)
    shown = [*raw.values, *(level.value for level in reward_levels(scene))] or [0.0, 1.0]
    low, high = min(shown), max(shown)
    margin = max(0.08 * (high - low), 0.02)
    return low - margin, high + margin


def _banded(axes: Axes, curve: Curve, colour: str, line: str, marker: str) -> None:
    if not curve.steps:
        return
    axes.plot(
        curve.steps, curve.values, color=colour, linestyle=line, linewidth=2, marker=marker, markersize=4,
        label=curve.label, zorder=3,
    )  # fmt: skip
    if len(curve.band) == 1:  # an area of one point is none
        step, low, high = curve.band[0]
        axes.errorbar([step], [curve.values[-1]], [[curve.values[-1] - low], [high - curve.values[-1]]], color=colour,
                      alpha=0.4, capsize=3, fmt="none")  # fmt: skip
    else:
        steps, lows, highs = zip(*curve.band, strict=True) if curve.band else ((), (), ())
        axes.fill_between(steps, lows, highs, color=colour, alpha=0.15, linewidth=0)


def _levels(axes: Axes, levels: Sequence[Level], form: str, measured: str) -> None:
    for level in levels:
        colour, line = LEVELS[level.name]
        axes.axhline(
            level.value,
            color=colour,
            linestyle=line,
            linewidth=1.4,
            label=f"{level_text(level, form)}, {measured}",
        )
        if level.interval is not None:
            axes.axhspan(*level.interval, color=colour, alpha=0.08, linewidth=0)


def _finish(axes: Axes, scene: Scene, title: str, label: str, *, empty: bool) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_ylabel(label, fontsize=9)
    axes.set_xlabel("GRPO step", fontsize=9)
    axes.set_xlim(-0.02 * max(1, scene.steps), 1.02 * max(1, scene.steps))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    if empty:
        axes.text(
            0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color=RANDOM
        )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), fontsize=7.5, frameon=False)
