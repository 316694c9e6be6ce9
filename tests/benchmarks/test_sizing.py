"""The sum of benchmarks.sizing, and that what it measures is there."""

import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks.sizing import Inputs, measure, plan

INPUTS = Inputs(
    step_cpu_us=200.0,  # 5,000 steps a second
    single_cpu_us=400.0,
    replay_cpu_us=100.0,
    base_mib=80.0,
    episode_kib=8.0,
    finished_kib=2.0,
    gateway_cpu_us=None,
)


def test_the_sum_by_hand() -> None:
    """4,096 steps at once take 5,000 a second 0.82 s; a tenth of 2 s is 0.2 s, so five servers, and
    a spare one."""
    found = plan(INPUTS, episodes=4096, turn_s=2.0, waiting=0.1, steps=5, finished_capacity=10_240)
    assert found.servers == 6
    assert found.wait_s == pytest.approx(4096 / (6 * 5000))
    assert found.rebuild_s == pytest.approx(4096 / 6 * 5 * 100e-6 / 5)
    assert found.memory_mib == pytest.approx(80 + 820 * 8 / 1024 + 20 + 32)


@pytest.mark.parametrize("episodes", [1, 64, 1000, 50_000])
@pytest.mark.parametrize("turn_s", [0.1, 2.0, 30.0])
def test_without_the_spare_one_the_wait_is_still_within_its_share(
    episodes: int, turn_s: float
) -> None:
    found = plan(INPUTS, episodes, turn_s, waiting=0.1, steps=5, finished_capacity=0)
    left = found.servers - 1
    assert episodes / (left * INPUTS.steps_per_s) <= 0.1 * turn_s * (1 + 1e-9)
    assert left == 1 or episodes / ((left - 1) * INPUTS.steps_per_s) > 0.1 * turn_s, (
        "and one less would be too few"
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_is_measured(tiny_data: Path) -> None:
    found = measure(tiny_data, workers=1, seconds=0.2, count=5_000)
    for name, value in dataclasses.asdict(found).items():
        assert value is None or value > 0, name
    assert found.step_cpu_us < found.single_cpu_us, "a batch is cheaper"
    assert found.finished_kib < found.episode_kib, "a finished one holds no environment"
