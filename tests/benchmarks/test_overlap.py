"""The benchmark of overlap_rollouts trains both ways, with updates that learn from every row."""

import json
from pathlib import Path

import pytest

from benchmarks.overlap import WAYS, main


@pytest.mark.slow
def test_both_ways_wait_and_update(tmp_path: Path) -> None:
    path = tmp_path / "overlap.json"
    main(steps=1, rollouts=8, turn_s=0.01, turns=2, rounds=1, json_path=path)
    rounds = json.loads(path.read_text())["rounds"]
    assert [*rounds] == [*WAYS]
    for [one] in rounds.values():
        assert 0 < one["waiting_s"] < one["step_s"]
