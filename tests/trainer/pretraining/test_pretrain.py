"""Pretraining end to end, in miniature: generate, play over HTTP, imitate, save, load, measure."""

import io
import json
import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from shared.models import Outcome
from tests.test_imports import ROOT
from trainer.config.settings import GRPOConfig
from trainer.errors import RunError
from trainer.pretraining import pretrain as module
from trainer.pretraining.imitation import PretrainConfig
from trainer.pretraining.pretrain import (
    LONG,
    TRIES,
    Stage,
    generate,
    model_card,
    play_demonstrations,
    pretrain,
    unseen_success,
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


@pytest.mark.slow
def test_small_pretraining_makes_a_model_that_loads_and_resumes(tmp_path, capsys):
    measured = []

    def make(out, stages=STAGES, interrupted=""):
        def measure(folder):
            measured.append(folder.name)
            if folder.name == interrupted:
                raise KeyboardInterrupt
            return SUCCESS

        measured.clear()
        return pretrain(out, SMALL, stages, measure=measure)

    out = tmp_path / "model"
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
    assert "short names: 12 episodes" in capsys.readouterr().out
    assert not (out / ".pretraining").exists()
    model, tokenizer = load_model_and_tokenizer(GRPOConfig.preset("offline", model_name=str(out)))
    assert model.config.architectures == ["Qwen3ForCausalLM"]
    assert model.config.eos_token_id == tokenizer.eos_token_id

    # interrupted in the second stage: while it was measured, and while its databases were generated
    again = tmp_path / "again"
    with pytest.raises(KeyboardInterrupt):
        make(again, interrupted="2-long-names")
    second = again / ".pretraining" / "2-long-names"
    shutil.rmtree(second)
    (second.parent / "data-2" / "questions" / "demonstrations.json").unlink()
    capsys.readouterr()
    resumed = make(again)
    assert "short names: trained before, in" in capsys.readouterr().out
    assert measured == ["2-long-names"]
    for stage, other in zip(resumed["stages"], record["stages"], strict=True):
        assert stage["loss"] == other["loss"]
    weights = "model.safetensors"
    assert (again / weights).read_bytes() == (out / weights).read_bytes()

    # other settings are refused, and what is there is kept
    other = tmp_path / "other"
    with pytest.raises(KeyboardInterrupt):
        make(other, interrupted="2-long-names")
    with pytest.raises(RunError, match=r"other settings \(stages was .*another --out"):
        make(other, [replace(STAGES[0], renaming={"alike_share": 0.5})])
    assert (other / ".pretraining" / "1-short-names" / weights).is_file()


def test_the_shipped_card_is_that_of_its_record():
    folder = ROOT / "data" / "models" / "sqlenv-tiny"
    record = json.loads((folder / "pretraining.json").read_text())
    assert (folder / "README.md").read_text() == model_card(record)


@pytest.mark.slow
def test_lost_demonstrations_are_left_out_and_counted(tmp_path, monkeypatch):
    played = RolloutRow(
        question_id="b", outcome=Outcome.CORRECT, prompt_ids=[1], completion_ids=[2], env_mask=[1]
    )
    lost = replace(played, question_id="a", outcome=Outcome.INFRA_FAILED, env_mask=[0])
    folder = tmp_path / "data"
    generate(folder, Stage("one", databases=1, questions=2), 1)
    monkeypatch.setattr("trainer.pretraining.pretrain.play_scripted", lambda *given: [lost, played])
    rows, counts = play_demonstrations(folder, None, tmp_path / "server.log")
    assert [row.learn for row in rows] == [[0, 1]]
    assert counts == {"episodes": 1, "episodes_lost": 1, "right": 1}


@pytest.mark.slow
def test_unseen_questions_are_played_greedily_and_sampled(small, monkeypatch):
    played, run_evaluation = [], module.run_evaluation

    def recorded(settings, console):
        played.append((settings.mode, settings.samples, len(settings.question_ids)))
        return run_evaluation(settings, console)

    monkeypatch.setattr(module, "run_evaluation", recorded)
    console = Console(file=io.StringIO(), width=200)
    found = unseen_success(small.override(step_budget=1, max_new_tokens=4), console, eval_limit=6)
    assert played == [("greedy", 1, found["n"]), ("sampled", TRIES, found["n"])]
    assert 0 < found["n"] == found["greedy"]["n"] == found["sampled"]["n"] < 6
    assert found["greedy"]["rate"] == found["pass_at_8"] == 0
