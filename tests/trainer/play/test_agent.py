"""Which model `play` takes."""

from pathlib import Path

import pytest

from trainer.play import agent as play_agent
from trainer.play.agent import choose_model
from trainer.presets import OFFLINE_MODEL


def test_which_model_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_agent, "RUNS", tmp_path)
    assert choose_model("mine") == ("mine", "given with --model")
    assert choose_model(None)[0] == OFFLINE_MODEL
    assert "untrained base" in choose_model(None)[1]
    run = tmp_path / "20260101-000000-offline-seed1"
    (run / "model").mkdir(parents=True)
    (run / "model" / "config.json").write_text("{}")
    (tmp_path / "latest").symlink_to(run.name)
    name, why = choose_model(None)
    assert name == str(tmp_path / "latest" / "model")
    assert run.name in why
