"""benchmarks.attacks: honest episodes beside all attacks at once, on a real server."""

from pathlib import Path

import pytest

from benchmarks.attacks.attackers import ATTACKS
from benchmarks.attacks.measure import measure

SHIPPED = Path(__file__).parents[2] / "data"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_attacks_at_once_lose_no_honest_step_and_leave_no_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.attacks.measure.PATIENCE_S", 200.0)
    result = measure("all", [*ATTACKS], SHIPPED, seconds=10.0)
    assert result.lost == 0, result.errors
    assert result.steps > 500
    assert result.median_s < 5
    assert result.memory_mib < 1_000
    assert result.cpu_after_s < 10
