"""Pretraining end to end, in miniature: generate, play over HTTP, imitate, save, load."""

import json
from dataclasses import replace

import pytest

from shared.errors import QuestionLoadError
from shared.models import Outcome
from tests.test_imports import ROOT
from trainer.config import GRPOConfig
from trainer.pretraining.imitation import PretrainConfig
from trainer.pretraining.model_card import model_card
from trainer.pretraining.pretrain import generate, load_scripts, play_demonstrations, pretrain
from trainer.rollout.row import RolloutRow
from trainer.runtime.models import load_model_and_tokenizer

SMALL = PretrainConfig(
    hidden_size=32,
    layers=2,
    head_dim=16,
    vocab_size=600,
    databases=2,
    questions=6,
    noise=0.0,
    passes=2.0,
    batch_tokens=2048,
)
RATE = {"rate": 0.2, "n": 5, "ci95": [0.036, 0.624]}
SUCCESS = {"n": 5, "greedy": RATE, "sampled": RATE, "pass_at_8": 0.5}


def test_small_pretraining_makes_a_model_that_loads_and_resumes(tmp_path):
    out, work, lines = tmp_path / "model", tmp_path / "work", []

    def make(out, report=lines.append, measure=lambda folder: SUCCESS, config=SMALL):
        return pretrain(out, config, work, report, measure=measure)

    def interrupt(line):
        if line.startswith("batch 0 "):
            raise KeyboardInterrupt

    record = make(out)
    assert (record["episodes"], record["right"], record["episodes_lost"]) == (12, 12, 0)
    assert record["success"] == SUCCESS
    assert json.loads((out / "pretraining.json").read_text()) == record
    card = (out / "README.md").read_text()
    assert card == model_card(record, "model")
    assert "--hidden-size 32 --passes 2`" in card
    assert "In 90 % of them, drawn again" in card
    assert "\n| 100.0 | " in card
    assert "| 20.0 [3.6, 62.4] | 20.0 [3.6, 62.4] | 50.0 |" in card
    assert any(line.startswith("12 episodes, 12 of them right") for line in lines)
    assert not list(tmp_path.rglob("*.pt"))
    model, tokenizer = load_model_and_tokenizer(GRPOConfig.preset("offline", model_name=str(out)))
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id

    # interrupted while the databases were generated, and while it trained
    (data_dir,) = work.glob("data-2x6-*")
    (data_dir / "questions" / "demonstrations.json").unlink()
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "again", interrupt)
    assert not (tmp_path / "again").exists()
    lines.clear()

    def fails(folder):
        raise RuntimeError("no server")

    # it continues, and what is missing after a failed measurement is measured without training
    with pytest.raises(RuntimeError, match="no server"):
        make(tmp_path / "again", measure=fails)
    assert any(line.startswith("continues from batch 1 of ") for line in lines)
    lines.clear()
    resumed = make(tmp_path / "again")
    assert not any(line.startswith("batch") for line in lines)
    assert resumed == {**record, "seconds": resumed["seconds"]}
    weights = "model.safetensors"
    assert (tmp_path / "again" / weights).read_bytes() == (out / weights).read_bytes()

    # a checkpoint of other settings is not used
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "third", interrupt)
    lines.clear()
    other = make(tmp_path / "third", config=replace(SMALL, renamed_share=0.0))
    assert any(line.startswith("starts anew: ") for line in lines)
    assert other["tokens"] < record["tokens"], "nothing is renamed to longer names"


def test_the_shipped_card_is_that_of_its_record():
    folder = ROOT / "data" / "models" / "sqlenv-tiny"
    record = json.loads((folder / "pretraining.json").read_text())
    assert (folder / "README.md").read_text() == model_card(record)


def test_missing_demonstrations_name_the_file_and_the_remedy(tmp_path):
    with pytest.raises(QuestionLoadError, match=r"demonstrations\.json.*python -m data generate"):
        load_scripts(tmp_path)


def test_lost_demonstrations_are_left_out_and_counted(tmp_path, monkeypatch):
    lost = RolloutRow(
        question_id="a",
        outcome=Outcome.INFRA_FAILED,
        prompt_ids=[1],
        completion_ids=[2],
        env_mask=[0],
    )
    played = replace(lost, question_id="b", outcome=Outcome.CORRECT, env_mask=[1])

    folder = generate(tmp_path, replace(SMALL, databases=1, questions=2), lambda line: None)
    monkeypatch.setattr("trainer.pretraining.pretrain.play_scripted", lambda *given: [lost, played])
    found = play_demonstrations(folder, None, tmp_path / "server.log")
    assert [(list(row.ids), list(row.learn)) for row in found.rows] == [([1, 2], [0, 1])]
    assert (found.right, found.lost) == (1, 1)
