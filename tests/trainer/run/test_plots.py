import io
import itertools
import math
from typing import Any

import numpy as np
from matplotlib.image import imread

from trainer.run.plots import headline, learning_curve, running_mean, series


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


def test_series_sorts_steps_and_skips_missing_values() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 3, "reward": 0.3},
        {"step": 1, "reward": 0.1},
        {"step": 2, "reward": None},
        {"step": 4, "reward": math.nan},
        {"step": 3, "reward": 0.5},
        {"reward": 9.0},
        {"step": 5, "loss": 0.0},
    ]
    assert series(rows, "reward") == ([1.0, 3.0], [0.1, 0.5])


def test_running_mean_is_the_mean_of_the_neighbours() -> None:
    assert running_mean([1.0, 2.0, 6.0], window=3) == [1.5, 3.0, 4.0]
    assert running_mean([], window=3) == []


def test_every_part_of_the_curve_is_drawn() -> None:
    rows: list[dict[str, Any]] = [
        {"step": step, "reward": step / 10, "success": step / 12} for step in range(1, 11)
    ]
    evals = [
        {
            "step": 5,
            "eval_greedy_success": 0.5,
            "eval_sampled_success": 0.2,
            "eval_greedy_reward": 0.6,
        }
    ]
    drawn = [
        learning_curve([], title="run"),
        learning_curve(rows, title="run"),
        learning_curve([*rows, *evals], title="run"),
        learning_curve([*rows, *evals], title="run", random=rates(0.1)),
        learning_curve([*rows, *evals], title="run", random=rates(0.1), before=rates(0.2)),
        learning_curve(
            [*rows, *evals],
            title="run",
            random=rates(0.1),
            before=rates(0.2),
            after=rates(0.8),
            steps=10,
        ),
    ]
    pictures = [pixels(png) for png in drawn]
    assert all(picture.shape[0] > 500 and picture.shape[1] > 500 for picture in pictures)
    for before, after in itertools.pairwise(pictures):
        assert not np.array_equal(before, after)  # each further part shows


def test_a_rate_that_was_not_measured_is_left_out() -> None:
    empty = {"greedy": {"overall": {"rate": None, "n": 0, "ci95": [0.0, 1.0]}}}
    assert np.array_equal(
        pixels(learning_curve([], title="run", before=empty)),
        pixels(learning_curve([], title="run")),
    )


def test_the_headline_says_the_result_once_there_is_one() -> None:
    before = {"before": rates(0.4)}
    assert headline("tiny", 1, {}) == headline("tiny", 1, before) == "GRPO of tiny, seed 1"
    title = headline("tiny", 1, before | {"after": rates(0.794)})
    changes = "greedy 40.0 % → 79.4 %, sampled 40.0 % → 79.4 %"
    assert title == f"GRPO of tiny, seed 1: success {changes}"
