"""Pretraining end to end, in miniature: generate, play over HTTP, imitate, save, load."""

import json
import shutil
from dataclasses import replace

import pytest

from shared.errors import QuestionLoadError
from shared.models import Outcome
from tests.test_imports import ROOT
from trainer.config import GRPOConfig
from trainer.errors import ConfigError, RunError
from trainer.pretraining.imitation import PretrainConfig
from trainer.pretraining.model_card import model_card
from trainer.pretraining.pretrain import (
    LONG,
    Stage,
    generate,
    load_scripts,
    play_demonstrations,
    pretrain,
)
from trainer.rollout.row import RolloutRow
from trainer.runtime.models import load_model_and_tokenizer

SMALL = PretrainConfig(hidden_size=32, layers=2, head_dim=16, vocab_size=600)
RATE = {"rate": 0.2, "n": 5, "ci95": [0.036, 0.624]}


SUCCESS = {"n": 5, "greedy": RATE, "sampled": RATE, "pass_at_8": 0.5}
STAGES = (
    Stage("short names", databases=2, questions=6, noise=0.0),
    Stage("long names", databases=1, questions=4, noise=1.0, rate=0.3, renaming=LONG.renaming),
)


def test_small_pretraining_makes_a_model_that_loads_and_resumes(tmp_path):
    out, work, lines, measured = tmp_path / "model", tmp_path / "work", [], []

    def measure(folder):
        measured.append(folder.name)
        return SUCCESS

    def make(out, report=lines.append):
        return pretrain(out, SMALL, STAGES, work, report, measure=measure)

    def interrupted(at, out):
        def interrupt(line):
            if line.startswith(at):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            make(out, interrupt)

    record = make(out)
    assert measured == ["1-short-names", "2-long-names"]
    assert [stage["episodes"] for stage in record["stages"]] == [12, 4]
    assert record["stages"][0]["right"] == 12
    assert json.loads((out / "pretraining.json").read_text()) == record
    card = (out / "README.md").read_text()
    assert card == model_card(record, "model")
    assert "| short names | 2 | 12 | 100.0 | 60 | 1 to 3 | 1 |" in card
    assert "| 90 | 1 to 5 | 1 |" in card
    assert "| long names | 20.0 [3.6, 62.4] | 20.0 [3.6, 62.4] | 50.0 |" in card
    assert any(line.startswith("short names: 12 episodes") for line in lines)
    assert not (out / "1-short-names").exists()
    assert not list(tmp_path.rglob("*.pt"))
    first = json.loads((work / "1-short-names" / "pretraining.json").read_text())
    assert first["stages"] == record["stages"][:1]
    model, tokenizer = load_model_and_tokenizer(GRPOConfig.preset("offline", model_name=str(out)))
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id

    # interruptions of the second stage: while its databases were generated, and while it trained
    shutil.rmtree(work / "2-long-names")
    (data_dir,) = work.glob("data-1x4-*")
    (data_dir / "questions" / "demonstrations.json").unlink()
    interrupted("long names: batch 0", tmp_path / "again")
    lines.clear()
    measured.clear()
    resumed = make(tmp_path / "again")
    assert lines[0] == f"short names: trained before, in {work / '1-short-names'}"
    assert "long names: continues from batch 1 of 2" in lines
    assert measured == ["2-long-names"]
    assert resumed["stages"][0] == record["stages"][0]
    assert resumed["stages"][1]["loss"] == record["stages"][1]["loss"]
    weights = "model.safetensors"
    assert (tmp_path / "again" / weights).read_bytes() == (out / weights).read_bytes()

    # of the first stage: the tokenizer and the new model are made again
    first = work / "1-short-names" / weights
    expected = first.read_bytes()
    shutil.rmtree(first.parent)
    interrupted("short names: batch 0", tmp_path / "third")
    lines.clear()
    make(tmp_path / "third")
    assert any(line.startswith("short names: continues from batch 1 of ") for line in lines)
    assert first.read_bytes() == expected


def test_other_settings_train_again_and_a_missing_measurement_is_made(tmp_path):
    stage, lines = Stage("one", databases=1, questions=3), []

    def make(stage, measure=None):
        lines.clear()
        return pretrain(tmp_path / "m", SMALL, [stage], tmp_path, lines.append, measure=measure)

    make(stage)
    assert "success" in make(stage, lambda folder: SUCCESS)["stages"][0]
    assert any("trained before" in line for line in lines)
    make(replace(stage, renaming={"alike_share": 0.5}))
    assert lines[0] == f"one: trains anew, as {tmp_path / '1-one'} differs in renaming"
    assert not any("trained before" in line for line in lines)


def test_several_processes_are_refused_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.pretraining.pretrain.precision", lambda *_: ("cuda", None))
    with pytest.raises(ConfigError, match="leave out --processes"):
        pretrain(tmp_path / "m", processes=2)
    assert not list(tmp_path.iterdir())


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

    folder = generate(tmp_path, Stage("one", databases=1, questions=2), 1, lambda line: None)
    monkeypatch.setattr("trainer.pretraining.pretrain.play_scripted", lambda *given: [lost, played])
    found = play_demonstrations(folder, None, tmp_path / "server.log")
    assert [row.learn for row in found.rows] == [[0, 1]]
    assert (found.right, found.lost) == (1, 1)


def test_without_a_workspace_an_interrupted_call_resumes_and_leaves_only_the_model(tmp_path):
    def make(report):
        return pretrain(
            tmp_path / "m", SMALL, [Stage("one", databases=1, questions=3)], report=report
        )

    def interrupt(line):
        if line.startswith("one: batch 0"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(interrupt)
    lines = []
    make(lines.append)
    assert "one: continues from batch 1 of 2" in lines
    assert not (tmp_path / "m" / ".pretraining").exists()
    assert (tmp_path / "m" / "model.safetensors").is_file()


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="choose another --out"):
        pretrain(tmp_path / "file", SMALL, STAGES)
    assert {path.name for path in tmp_path.iterdir()} == {"file"}
