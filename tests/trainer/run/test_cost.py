"""What training costs: sums over steps in metrics.jsonl, and what summary.json says of them."""

import math
from types import SimpleNamespace

import pytest

from trainer.grpo.grpo_job import EvalCallback
from trainer.rollout.loop import RolloutStats
from trainer.run.cost import SINCE_START, cost
from trainer.run.folder import Run, read_lines
from trainer.run.metrics_log import MetricsCallback
from trainer.run.records import Book
from trainer.runtime.interrupt import Interrupts


def test_the_cost_splits_a_step_into_parts_that_add_up():
    times = {"rollout_s": 18.0, "generate_s": 12.0, "env_wait_s": 4.5, "update_s": 12.0}
    rows = [
        {"step": 15, **times, "train_s": 30.0, "cpu_s": 48.0, "server_cpu_s": 6.0},
        {"step": 30, **times, "train_s": 60.0, "cpu_s": 96.0, "server_cpu_s": 12.0},
        {"step": 10, "eval_n": 32, "eval_s": 6.0},
        {"step": 30, "eval_n": 32, "eval_s": 9.0},
    ]
    found = cost(rows, steps=30, episodes=480, whole_s=50.0)
    assert found["cpu_s_per_episode"] == 0.2
    assert found["server_cpu_s_per_episode"] == 0.025
    parts = {"generate_s": 0.8, "env_wait_s": 0.3, "other_rollout_s": 0.1, "update_s": 0.8}
    assert found["step"] == {"train_s": 2.0, **parts, "evaluation_s": 0.5}
    assert found["curve_evaluation_s"] == 15.0
    assert found["whole_evaluation_s"] == 50.0


class Clock:
    """Replaces `time`; the test advances it."""

    wall, cpu = 1000.0, 50.0

    def perf_counter(self) -> float:
        return self.wall

    def process_time(self) -> float:
        return self.cpu

    def work(self, wall: float, cpu: float) -> None:
        self.wall, self.cpu = self.wall + wall, self.cpu + cpu


def test_rows_hold_what_training_cost_also_after_a_resume(tmp_path, monkeypatch):
    """Two steps with an evaluation before each, then a callback that resumes from there."""
    clock, run = Clock(), Run(tmp_path)
    monkeypatch.setattr("trainer.run.metrics_log.time", clock)

    def play(steps: int, ticks: list[float]) -> dict[str, float]:
        """Return what the run has spent; `ticks` is the servers' clock at both ends of a step."""
        stats, times = RolloutStats(), iter(ticks)
        callback = MetricsCallback(run, Book([], []), stats, server_cpu=lambda: next(times))
        for step in range(steps):
            clock.work(7.0, 9.0)
            callback.on_step_begin(None, None, None)
            clock.work(4.0, 5.0)
            stats.rollout_s += 3.0
            stats.generate_s += 2.0
            callback.on_step_end(None, None, None)
            callback.on_log(None, SimpleNamespace(global_step=step, max_steps=9), None)
        return callback.spent

    assert play(0, []) == dict.fromkeys(SINCE_START, 0.0)
    assert play(2, [10.0, 11.0, 15.0, 15.5]) == {"train_s": 8, "cpu_s": 10, "server_cpu_s": 1.5}
    # a restarted server subtracts nothing
    assert play(1, [100.0, 3.0]) == {"train_s": 12, "cpu_s": 15, "server_cpu_s": 1.5}
    rows = list(read_lines(run.metrics))
    spent = [(row["rollout_s"], row["generate_s"], row["update_s"]) for row in rows]
    assert spent == [(3, 2, 1)] * 3
    assert [row["train_s"] for row in rows] == [4, 8, 12]
    # once it can't be measured, it is unknown
    assert math.isnan(play(1, [math.nan, math.nan])["server_cpu_s"])
    assert math.isnan(play(1, [1.0, 2.0])["server_cpu_s"])
    found = cost(read_lines(run.metrics), steps=5, episodes=0, whole_s=0.0)
    assert (found["train_s"], found["server_cpu_s"]) == (20, None)
    assert found["cpu_s_per_episode"] is None  # of no episodes


@pytest.mark.parametrize(
    ("every", "measured"), [(None, [10, 20, 30, 40, 50]), (20, [20, 40]), (0, [])]
)
def test_the_curve_is_measured_at_its_interval(every, measured):
    seen: list[int] = []
    callback = EvalCallback(every, Interrupts(), seen.append)
    for step in range(60):
        callback.on_step_begin(None, SimpleNamespace(global_step=step, max_steps=60), None)
    assert seen == measured
