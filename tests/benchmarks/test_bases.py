"""Base models side by side: what is read from their records, and the page."""

import json
from pathlib import Path

import pytest

from benchmarks.learning.bases import curves, page, read_base
from trainer.errors import RunError


def rate(value: float) -> dict[str, object]:
    return {"rate": value, "n": 200, "ci95": [value - 0.05, value + 0.05]}


def stage(tokens: int, greedy: float) -> dict[str, object]:
    success = {"n": 200, "greedy": rate(greedy), "sampled": rate(greedy - 0.1), "pass_at_8": 0.9}
    return {"tokens": tokens, "parameters": 2_000_000, "success": success}


def folder(root: Path, *stages: dict[str, object]) -> Path:
    root.mkdir(exist_ok=True)
    (root / "pretraining.json").write_text(json.dumps({"stages": stages}))
    return root


def test_tokens_add_up_over_the_stages_of_a_base(tmp_path: Path) -> None:
    small = read_base(folder(tmp_path / "small", stage(60_000_000, 0.6), stage(20_000_000, 0.7)))
    assert (small.name, small.parameters) == ("small", 2_000_000)
    assert small.tokens == [60_000_000, 80_000_000]
    large = read_base(folder(tmp_path / "large", stage(90_000_000, 0.8)))
    text = page([small, large], "python -m benchmarks.learning bases small large")
    assert "| small | 2,000,000 | 60 | 60.0 [55.0, 65.0] | 50.0 [45.0, 55.0] | 90.0 |" in text
    assert "| small | 2,000,000 | 80 | 70.0 [65.0, 75.0] | 60.0 [55.0, 65.0] | 90.0 |" in text
    assert "| large | 2,000,000 | 90 | 80.0 [75.0, 85.0] | 70.0 [65.0, 75.0] | 90.0 |" in text
    assert "on the 200 easy and medium" in text
    assert curves([small, large]) != curves([small])


def test_a_folder_without_a_measured_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no .*pretraining\.json: name the --out folders"):
        read_base(tmp_path)
    unmeasured = stage(1, 0.5)
    del unmeasured["success"]
    with pytest.raises(RunError, match="a stage without its success: repeat"):
        read_base(folder(tmp_path, unmeasured))
