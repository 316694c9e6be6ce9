"""Which model `play` takes."""

import os
from pathlib import Path

import pytest

from trainer.play import agent as play_agent
from trainer.play.agent import choose_model
from trainer.presets import TRAINED_MODEL
from trainer.run.folder import write_json


def test_which_model_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_agent, "RUNS", tmp_path)
    assert choose_model("mine") == ("mine", "given with --model or --adapter")
    assert choose_model(None)[0] == TRAINED_MODEL
    assert "shipped trained model" in choose_model(None)[1]
    run = tmp_path / "20260101-000000-offline-seed1"
    finish(run)
    name, why = choose_model(None)
    assert name == str(run / "model")
    assert why == f"of the newest finished run; the shipped one: --model {TRAINED_MODEL}"


def test_a_run_that_was_stopped_does_not_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_agent, "RUNS", tmp_path)
    first, stopped = (tmp_path / f"20260101-00000{number}-sft-seed1" for number in range(2))
    write_json(stopped / "config.json", {"command": "sft", "config": {}})
    (tmp_path / "latest").symlink_to(stopped.name)
    model, why = choose_model(None)
    assert model == TRAINED_MODEL
    resume = f"to resume it:  python -m trainer sft --resume {stopped}"
    assert resume in why
    finish(first)
    os.utime(first / "summary.json", (1, 1))
    model, why = choose_model(None)
    assert model == str(first / "model")
    assert resume in why
    finish(stopped)
    assert choose_model(None)[0] == str(stopped / "model")


def test_an_evaluation_or_another_folder_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play_agent, "RUNS", tmp_path)
    write_json(tmp_path / "evaluation" / "config.json", {"evaluation": {}, "config": {}})
    write_json(tmp_path / "list" / "config.json", [])
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text("{")
    assert choose_model(None)[0] == TRAINED_MODEL


def finish(run: Path) -> None:
    write_json(run / "config.json", {"config": {}})
    write_json(run / "summary.json", {"train_steps": 8})
    write_json(run / "model" / "config.json", {})
