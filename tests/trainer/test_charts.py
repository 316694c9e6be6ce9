import io
import itertools
import math
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from trainer.charts import (
    Baseline,
    Chart,
    Point,
    Series,
    learning_curve,
    logged_and_mean,
    png,
    points,
    reward_chart,
    smoothed,
    smoothing_note,
)
from trainer.config.settings import REWARD_WEIGHTS


def rates(rate: float) -> dict[str, Any]:
    return {
        mode: {
            "overall": {"rate": rate, "n": 100, "ci95": [rate - 0.05, rate + 0.05]},
            "mean_reward": rate - 0.1,
        }
        for mode in ("greedy", "sampled")
    }


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    assert png.startswith(b"\x89PNG")
    return np.asarray(imread(io.BytesIO(png), format="png"))


def test_points_are_sorted_by_steps_without_missing_values():
    rows: list[dict[str, Any]] = [
        {"step": 3, "reward": 0.3},
        {"step": 1, "reward": 0.1},
        {"step": 2, "reward": None},
        {"step": 4, "reward": math.nan},
        {"step": 3, "reward": 0.5},
        {"reward": 9.0},
        {"step": 5, "loss": 0.0},
    ]
    assert points(rows, "reward") == [Point(1.0, 0.1), Point(3.0, 0.5)]


def test_the_smoothed_curve_is_the_mean_of_its_window_with_the_interval_of_its_steps():
    found = smoothed([Point(step, float(step)) for step in range(11)])
    assert [one.y for one in found] == [2, 2.5, 3, 3.5, 4, 5, 6, 6.5, 7, 7.5, 8]
    half = 2.306 * math.sqrt(7.5) / 3  # Student's t of 9 values, whose variance is 7.5
    assert (found[5].low, found[5].high) == pytest.approx((5 - half, 5 + half))


def test_a_run_shorter_than_the_window_has_no_running_mean():
    values = [Point(step, float(step)) for step in range(9)]
    assert [one.kind for one in logged_and_mean(values, "x", "blue")] == ["faint", "line"]
    short = logged_and_mean(values[:8], "x", "blue")
    assert [(one.kind, one.points) for one in short] == [("marked", values[:8])]
    assert smoothing_note(short) == ""
    assert logged_and_mean([], "x", "blue") == []


def test_the_chart_of_rewards_names_the_weights_of_measurements():
    weights = ", ".join(f"{weight:g}" for weight in REWARD_WEIGHTS.values())
    assert weights in reward_chart([], {}).note


def test_every_part_of_the_curve_is_drawn():
    rows: list[dict[str, Any]] = [
        {"step": step, "reward": step / 10, "success": step / 12} for step in range(1, 11)
    ]
    point = {"step": 5, "eval_n": 8, "eval_greedy_success": 0.5, "eval_greedy_reward": 0.6}
    measured = {"random": rates(0.1), "before": rates(0.2), "after": rates(0.8)}
    pictures = [
        pixels(learning_curve(given, summaries, title="run", steps=10))
        for given, summaries in (([], {}), (rows, {}), ([*rows, point], {}), (rows, measured))
    ]
    assert all(picture.shape[0] > 500 and picture.shape[1] > 500 for picture in pictures)
    for one, more in itertools.pairwise(pictures):
        assert not np.array_equal(one, more)  # each further part shows


@pytest.mark.parametrize(
    "series", [[], [Series("s", [Point(3, 1.0, 0.5, 1.5)], "blue", band=True)]]
)
def test_a_chart_with_few_or_no_points_is_drawn(series):
    chart = Chart("k", "T", series, [Baseline("chance", 0.2)], steps=9)
    assert png([chart], "title").startswith(b"\x89PNG")
