"""The charts of a live display as numbers, and its episodes as text."""

from dataclasses import replace

import pytest

from shared.run_stats import Rate
from tests.trainer.grpo.live.live_data import ROWS, episode
from trainer.grpo.live.snapshot import (
    LiveSnapshot,
    Trace,
    reward_chart,
    success_chart,
    trace_heading,
    trace_markdown,
)
from trainer.run.plots import mean_interval

WITH_CURVE = [*ROWS, {"step": 9, "eval_n": 32, "eval_greedy_success": 0.5}]


def test_reward_is_smoothed_and_its_band_is_of_the_same_window(snapshot: LiveSnapshot) -> None:
    raw, smooth = reward_chart(snapshot).series
    assert [point.y for point in raw.points[:2]] == [0.1, 0.2]
    assert smooth.points[0].y == pytest.approx(0.3)  # of steps 1 to 5
    sixth = smooth.points[5]
    assert (sixth.x, sixth.y) == (6, pytest.approx(0.6))  # of 2 to 10
    interval = mean_interval([0.1 * one for one in range(2, 11)])
    assert (sixth.low, sixth.high) == pytest.approx(interval)
    short = reward_chart(replace(snapshot, rows=ROWS[:2])).series[1]
    assert [point.low for point in short.points] == [None, None]  # too few for an interval


def test_success_has_wilson_bands_and_no_point_of_lost_episodes(snapshot: LiveSnapshot) -> None:
    train, evaluation = success_chart(snapshot).series
    assert [point.y for point in train.points] == [1 / 3, 1.0]
    assert (train.points[0].low, train.points[0].high) == pytest.approx(Rate(1, 3).ci95)
    assert [point.x for point in evaluation.points] == [0.0]  # after 10 steps all were lost


def test_the_jobs_eval_curve_is_drawn_too(snapshot: LiveSnapshot) -> None:
    *_, curve = success_chart(replace(snapshot, rows=WITH_CURVE)).series
    assert curve.label == "eval, greedy, 32 questions"
    assert (curve.points[0].low, curve.points[0].high) == pytest.approx(Rate(16, 32).ci95)


def test_baselines_are_whole_evaluations_with_intervals(snapshot: LiveSnapshot) -> None:
    random, before = success_chart(snapshot).baselines
    assert (random.y, random.interval) == (0.05, Rate(1, 20).ci95)
    assert before.y == 0.4  # greedy, as the curves are
    assert before.label == "before training 40.0 % [21.9 %, 61.3 %], eval set"
    _, sampled = reward_chart(snapshot).baselines
    # sampled, as training's episodes are
    assert sampled.y == pytest.approx((6 * 1.055 + 14 * 0.055) / 20)


def test_a_trace_as_markdown_shows_texts_literally() -> None:
    nasty = "ANSWER: <script>alert(1)</script> `|` [red]\n```\n# heading"
    trace = Trace(3, "<b>?", episode(1, action=nasty, shown="x" * 5000))
    text = trace_markdown(trace)
    assert all(f"        {line}\n" in text for line in nasty.splitlines())  # a code block
    assert "✅ correct after 2 steps, reward 1.0" in text
    assert text.startswith("## After 3 steps, greedy: q1 on farm (unseen), easy")
    assert trace_heading(replace(trace, step=1)).startswith("After 1 step, ")
