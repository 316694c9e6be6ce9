"""`trainer compare`: success beside the first run's, what differs in settings, one picture."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shared.run_files import sealed
from tests.trainer.played_run import record_run
from trainer.__main__ import app
from trainer.run.evaluation import read_measured


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A run, and a copy with another setting in which every episode after training is wrong."""
    monkeypatch.chdir(tmp_path)
    record_run(tmp_path / "made").rename("first")
    first, second = Path("first"), Path("second")
    shutil.copytree(first, second)
    lines = [json.loads(line) for line in (second / "episodes.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("sha256", None)
        if line["phase"] == "after":
            line |= {"outcome": "wrong", "correctness": 0.0}
    texts = (json.dumps(sealed(line), ensure_ascii=False) + "\n" for line in lines)
    (second / "episodes.jsonl").write_text("".join(texts))
    config = json.loads((second / "config.json").read_text())
    config["config"]["learning_rate"] = 0.5
    (second / "config.json").write_text(json.dumps(config))
    return [first, second]


def compared(*arguments: object) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", *map(str, arguments)])
    return result.exit_code, " ".join(result.output.split())


def test_runs_are_compared_question_by_question(runs, tmp_path):
    code, text = compared(*runs, "--out", tmp_path / "curves.png")
    assert code == 0, text
    before, after = (read_measured(run).tries for run in runs)
    assert {one.right for one in after.values()} == {0}
    lost = sum(one.right > 0 for one in before.values())
    assert lost > 0
    assert f" 0 {lost} " in text, "gained and lost"
    assert "learning_rate: " in text
    assert "seed: " not in text, "it is the same"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_run_is_named(runs, tmp_path):
    assert compared(runs[0]) == (1, "error: name 2 to 4 runs or evaluations to compare")
    config = json.loads((runs[1] / "config.json").read_text())
    (runs[1] / "config.json").write_text(json.dumps({**config, "data_digest": "other"}))
    code, text = compared(*runs)
    assert (code, "measured on different data" in text) == (1, True)
    code, text = compared(runs[0], tmp_path)
    assert code == 1
    assert "no run and no evaluation at" in text
