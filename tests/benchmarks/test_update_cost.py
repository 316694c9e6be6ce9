"""The benchmark of an update, which compares sampled log-probabilities with recomputed ones."""

import json
from pathlib import Path

import pytest

from benchmarks.update_cost import GROUP, main


@pytest.mark.slow
def test_an_update_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "update.json"
    main(episodes=GROUP, only=["and a shared prompt"], json_path=path)
    [cost] = json.loads(path.read_text())["costs"]
    assert cost["cpu_s"] > 0 < cost["grad_norm"]
    assert 0 < cost["logprob_max"] < 1e-4
