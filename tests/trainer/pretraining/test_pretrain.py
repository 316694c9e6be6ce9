"""Pretraining end to end, in miniature: generate, play over HTTP, imitate, save, load."""

import json
from dataclasses import replace

import pytest

from shared.errors import QuestionLoadError
from shared.models import Outcome
from trainer.config import GRPOConfig
from trainer.pretraining.imitation import PretrainConfig
from trainer.pretraining.pretrain import (
    Stage,
    generate,
    load_scripts,
    play_demonstrations,
    pretrain,
)
from trainer.rollout.loop import RolloutStats
from trainer.rollout.row import RolloutRow
from trainer.runtime.models import load_model_and_tokenizer

SMALL = PretrainConfig(
    hidden_size=32, layers=2, heads=2, head_dim=16, intermediate_size=64, vocab_size=600
)
RATE = {"rate": 0.2, "n": 5, "ci95": [0.036, 0.624]}


def test_small_pretraining_makes_a_model_that_loads(tmp_path):
    out, lines = tmp_path / "model", []
    stages = [
        Stage("expert", databases=2, questions=6, noise=0.0),
        Stage("mixed", databases=1, questions=4, noise=1.0, rate=0.3),
    ]
    success = {"n": 5, "greedy": RATE, "sampled": RATE, "pass_at_8": 0.5}
    measured = []

    def measure(folder):
        measured.append(folder.name)
        return success

    record = pretrain(
        out, SMALL, stages, workspace=tmp_path / "work", report=lines.append, measure=measure
    )

    assert measured == ["model-expert", "model"]
    assert [stage["episodes"] for stage in record["stages"]] == [12, 4]
    assert json.loads((out / "pretraining.json").read_text()) == record
    assert any(line.startswith("expert: 12 episodes") for line in lines)
    assert "| expert | 2 | 12 | 1 | 0% careless |" in (out / "README.md").read_text()
    assert (
        "| mixed | 20.0 [3.6, 62.4] | 20.0 [3.6, 62.4] | 50.0 |" in (out / "README.md").read_text()
    )
    assert (
        len(json.loads((tmp_path / "model-expert" / "pretraining.json").read_text())["stages"]) == 1
    )
    model, tokenizer = load_model_and_tokenizer(GRPOConfig.preset("offline", model_name=str(out)))
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id


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

    def play(scripts, tokenizer, config, *, stats):
        stats.episodes_lost += 1
        return [lost, played]

    folder = generate(
        tmp_path, Stage("expert", databases=1, questions=2, noise=0.0), 1, lambda line: None
    )
    monkeypatch.setattr("trainer.pretraining.pretrain.play_scripted", play)
    stats = RolloutStats()
    rows = play_demonstrations(folder, None, tmp_path / "server.log", stats)
    assert [row.learn for row in rows] == [[0, 1]]
    assert stats.episodes_lost == 1
