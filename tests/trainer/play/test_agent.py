"""Which model `play` takes, and by which settings."""

import json
from pathlib import Path

import pytest

from trainer.config import OFFLINE_MODEL
from trainer.play import agent as play_agent
from trainer.play.agent import choose_model, run_settings


def test_which_model_plays_and_by_which_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_agent, "RUNS", tmp_path)
    assert choose_model("mine") == ("mine", "given with --model")
    assert choose_model(None)[0] == OFFLINE_MODEL
    assert "untrained base" in choose_model(None)[1]
    run = tmp_path / "20260101-000000-offline-seed1"
    for folder in ("model", "checkpoints/checkpoint-20"):
        (run / folder).mkdir(parents=True)
        (run / folder / "config.json").write_text("{}")
    (run / "config.json").write_text(json.dumps({"config": {"max_new_tokens": 7, "gone": 1}}))
    (tmp_path / "latest").symlink_to(run.name)
    name, why = choose_model(None)
    assert name == str(tmp_path / "latest" / "model")
    assert run.name in why
    for folder in (name, str(run / "checkpoints" / "checkpoint-20")):
        assert run_settings(folder) == {"max_new_tokens": 7}
    assert run_settings(OFFLINE_MODEL) is None
