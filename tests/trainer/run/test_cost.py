"""What training costs: sums over steps, stored in checkpoints, and reported in summary.json."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.grpo.metrics_log import EvalCallback, MetricsCallback, curve_interval, spent_at
from trainer.rollout.loop import RolloutStats
from trainer.run.console import cost_lines
from trainer.run.cost import UNKNOWN, Spent, cost, seconds_to
from trainer.run.folder import Run
from trainer.run.records import Book
from trainer.runtime.interrupt import Interrupts


def point(step: int, train_s: float, greedy: float | None, sampled: float) -> dict[str, Any]:
    rates = {"eval_greedy_success": greedy, "eval_sampled_success": sampled}
    return {"step": step, "eval_n": 32, "train_s": train_s, "eval_s": step / 4, **rates}


CURVE = [
    point(0, 0.0, 0.25, 0.1),
    {"step": 5, "success": 0.9, "train_s": 9.0},  # a row of training is no point of the curve
    point(10, 20.0, 0.5, 0.3),
    point(20, 41.0, 0.7, 0.5),
    point(30, 63.0, 0.8, 0.49),
]


def test_a_target_is_reached_at_the_first_point_at_or_above_it() -> None:
    assert seconds_to(CURVE, "greedy", 0.5) == seconds_to(CURVE[::-1], "greedy", 0.5) == 20.0
    assert seconds_to(CURVE, "greedy", 0.75) == 63.0
    assert seconds_to(CURVE, "sampled", 0.5) == 41.0
    assert seconds_to(CURVE, "sampled", 0.75) is None
    assert seconds_to([point(0, 0.0, None, 0.0)], "greedy", 0.5) is None
    assert seconds_to([point(0, 0.0, 0.9, 0.0)], "greedy", 0.5) == 0.0  # before training


def test_the_cost_splits_a_step_into_parts_that_add_up() -> None:
    spent = Spent(
        train_s=60.0, rollout_s=36.0, generate_s=24.0, env_wait_s=9.0, cpu_s=96.0, server_cpu_s=12.0
    )
    found = cost(CURVE, spent, steps=30, episodes=480, whole_s=50.0)
    assert found["seconds_to"] == {
        "greedy": {"0.5": 20.0, "0.75": 63.0},
        "sampled": {"0.5": 41.0, "0.75": None},
    }
    assert found["cpu_s_per_episode"] == 0.2
    assert found["server_cpu_s_per_episode"] == 0.025
    step = found["step"]
    assert step == {
        "train_s": 2.0,
        "generate_s": 0.8,
        "env_wait_s": 0.3,
        "other_rollout_s": 0.1,
        "update_s": 0.8,
        "evaluation_s": 0.5,
    }
    assert found["curve_evaluation_s"] == 15.0
    assert found["whole_evaluation_s"] == 50.0
    first, second = cost_lines(found)
    assert "50 % greedy after 20 s" in first
    assert "75 % sampled not reached" in first
    found["seconds_to"]["greedy"]["0.5"] = 0.0
    assert "50 % greedy from the start" in cost_lines(found)[0]
    assert (
        "per step 2.00 s: generate 0.80, env wait 0.30, other rollout 0.10, update 0.80" in second
    )
    assert "trainer 0.200, server 0.025" in second


def test_unmeasured_seconds_stay_unknown() -> None:
    spent = Spent(train_s=1.0, server_cpu_s=UNKNOWN)
    spent.add(train_s=1.0, server_cpu_s=1.0)
    assert spent.as_dict()["server_cpu_s"] is None
    again = Spent.from_dict(json.loads(json.dumps(spent.as_dict())))
    assert again.train_s == 2.0
    assert math.isnan(again.server_cpu_s)
    found = cost([], again, steps=2, episodes=0, whole_s=0.0)
    assert found["server_cpu_s_per_episode"] is None
    assert found["cpu_s_per_episode"] is None  # of no episodes
    assert "server -" in cost_lines(found)[1]


class Clock:
    """Replaces `time`; the test advances it."""

    wall, cpu = 1000.0, 50.0

    def perf_counter(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.cpu

    def work(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = self.wall + wall, self.cpu + cpu


def test_a_checkpoint_stores_what_training_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps with an evaluation before each, then a callback that resumes from there."""
    clock = Clock()
    monkeypatch.setattr("trainer.grpo.metrics_log.time", clock)
    # the servers' clock, at the two ends of each step
    ticks = iter([10.0, 11.0, 15.0, 15.5, 100.0, 3.0])
    state = SimpleNamespace(stateful_callbacks={})

    def play(spent: Spent, steps: int) -> None:
        stats = RolloutStats()
        book = Book([], [])
        callback = MetricsCallback(
            Run(tmp_path), book, stats, spent=spent, server_cpu=lambda: next(ticks)
        )
        callback.on_train_begin(None, state, None)
        for _ in range(steps):
            clock.work(7.0, 9.0)
            callback.on_step_begin(None, state, None)
            clock.work(4.0, 5.0)
            stats.rollout_s += 3.0
            stats.generate_s += 2.0
            stats.env_wait_s += 0.5
            callback.on_step_end(None, state, None)

    def checkpoint() -> Path:
        (tmp_path / "trainer_state.json").write_text(
            json.dumps({"stateful_callbacks": state.stateful_callbacks})
        )
        return tmp_path

    play(Spent(), 0)
    assert spent_at(checkpoint()) == spent_at(None) == Spent()  # stopped before its first step
    play(Spent(), 2)
    spent = spent_at(checkpoint())
    two = Spent(
        train_s=8.0, rollout_s=6.0, generate_s=4.0, env_wait_s=1.0, cpu_s=10.0, server_cpu_s=1.5
    )
    assert spent == two
    play(spent, 1)
    assert (spent.train_s, spent.cpu_s) == (12.0, 15.0)
    assert spent.server_cpu_s == 1.5  # a restarted server subtracts nothing
    assert spent_at(checkpoint()) == spent


@pytest.mark.parametrize(("steps", "interval"), [(3, 5), (61, 8), (1000, 125)])
def test_the_curve_has_about_eight_points_for_any_length(steps: int, interval: int) -> None:
    assert curve_interval(steps) == interval
    assert steps // curve_interval(steps) <= 8


@pytest.mark.parametrize(
    ("every", "measured"), [(None, [8, 16, 24, 32, 40, 48, 56]), (20, [20, 40]), (0, [])]
)
def test_the_curve_is_measured_at_its_interval(every: int | None, measured: list[int]) -> None:
    seen: list[int] = []
    callback = EvalCallback(every, Interrupts(), seen.append)
    for step in range(60):
        callback.on_step_begin(None, SimpleNamespace(global_step=step, max_steps=60), None)
    assert seen == measured
