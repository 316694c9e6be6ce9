"""`python -m trainer sft` end to end, on the real environment and a tiny random model."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from tests.trainer.conftest import FakeClient, record
from tests.trainer.model_families import FAMILIES, real_tokenizer, tiny_tokenizer
from tests.trainer.small_job import latest, run_here
from trainer.config.presets import OFFLINE_MODEL
from trainer.config.settings import GRPOConfig
from trainer.errors import RunError
from trainer.rollout.loop import EpisodeClient
from trainer.run.folder import Run, read_json, read_lines
from trainer.run.records import EpisodeRecord, append_records
from trainer.run.resume import resumed_settings
from trainer.runtime.models import load_model_and_tokenizer
from trainer.sft.demonstrate import demonstrate
from trainer.sft.scripts import Script
from trainer.sft.sft_command import (
    FURTHER_LEARNING_RATE,
    LARGE_LEARNING_RATE,
    LEARNING_RATE,
    warm_start_config,
)
from trainer.sft.sft_job import DEMONSTRATIONS, SftJob, SftOptions


@pytest.fixture
def client(data_dir: Path) -> Iterator[EpisodeClient]:
    (data_dir / "questions" / "questions_eval.json").unlink()  # a warm start measures nothing
    with in_process(create_app(Settings(data_dir=data_dir, sql_workers=1))).sync() as opened:
        yield opened


@pytest.fixture
def config(small: GRPOConfig) -> GRPOConfig:
    return small.override(
        max_steps=-1,
        num_train_epochs=2,
        lr_scheduler="linear",
        warmup_steps=1,
        max_new_tokens=64,
        step_budget=5,
        save_steps=2,
    )


def test_a_warm_start_writes_a_model_that_has_learnt_the_demonstrations(
    config, tmp_path, client, monkeypatch
):
    options = SftOptions(out=tmp_path / "runs", rows=6)
    monkeypatch.setattr("trainer.sft.sft_job.BATCH", 4)
    shown = run_here(config, options, client, monkeypatch, kind=SftJob)
    run = latest(tmp_path)
    rows = list(read_lines(run.path / "demonstrations.jsonl"))
    assert len(rows) == 6
    assert {row["source"] for row in rows} == {"oracle"}
    assert sorted(row["database"] for row in rows) == ["club"] * 3 + ["shop"] * 3
    for row in rows:
        kinds = [action.split(":")[0] for action in row["actions"]]
        assert kinds == ["DESCRIBE", "QUERY", "ANSWER"]
        assert len(row["ids"]) == len(row["learn"])
    _, tokenizer = load_model_and_tokenizer(config)
    masked = zip(rows[0]["ids"], rows[0]["learn"], strict=True)
    taught = tokenizer.decode([token for token, learn in masked if learn])
    assert taught == "".join(f"{action}<|im_end|>" for action in rows[0]["actions"])

    summary = read_json(run.summary)
    assert summary["train_steps"] == 4
    assert summary["sft"]["demonstrations"] == {"oracle": 6}
    assert summary["sft"]["learned_tokens"] == sum(sum(row["learn"]) for row in rows)
    losses = [row["loss"] for row in read_lines(run.metrics) if "loss" in row]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert "6 demonstrations, 4 steps" in shown

    before, _ = load_model_and_tokenizer(config)
    after, _ = load_model_and_tokenizer(config.override(model_name=str(run.model)))
    weights = zip(before.parameters(), after.parameters(), strict=True)
    assert not all(torch.equal(one, other) for one, other in weights)

    # resumed: nothing is left to do, and only its own command may
    resumed, saved = resumed_settings(run, (), {}, SftOptions)
    assert list(saved.sources) == ["oracle"]
    assert "is finished" in run_here(resumed, saved, client, monkeypatch, resume=run, kind=SftJob)
    with pytest.raises(RunError, match="made by 'python -m trainer sft'"):
        resumed_settings(run, (), {})


def test_an_interrupted_warm_start_resumes_with_its_demonstrations(
    config, tmp_path, client, monkeypatch
):
    options = SftOptions(out=tmp_path / "runs", rows=6)
    monkeypatch.setattr("trainer.sft.sft_job.BATCH", 2)
    train = "trainer.run.job.train_from"
    from trainer.runtime.training import train_from

    def interrupted(trainer: Any, checkpoint: Any, max_steps: int) -> int:
        guard = next(one for one in trainer.callback_handler.callbacks if hasattr(one, "ranks"))
        guard.ranks.interrupts.requested = True  # as Ctrl-C in the first step
        return train_from(trainer, checkpoint, max_steps)

    monkeypatch.setattr(train, interrupted)
    shown = run_here(config, options, client, monkeypatch, kind=SftJob)
    run = latest(tmp_path)
    assert "-m trainer sft --resume" in shown
    assert not run.summary.exists()
    assert [path.name for path in run.checkpoints.iterdir()] == ["checkpoint-1"]

    monkeypatch.setattr(train, train_from)
    resumed, saved = resumed_settings(run, (), {}, SftOptions)
    # a server that knows no answer: the demonstrations are not played again
    run_here(resumed, saved, FakeClient(), monkeypatch, resume=run, kind=SftJob)
    assert read_json(run.summary)["train_steps"] == 6
    assert [row["step"] for row in read_lines(run.metrics) if "loss" in row] == [1, 2, 3, 4, 5, 6]


def test_demonstrations_that_cannot_be_taught_are_counted(config, tmp_path, client, monkeypatch):
    path = Path(config.questions_path)
    questions = json.loads(path.read_text())
    questions[0]["gold_sql"] = "SELECT 'no such answer' FROM nowhere"
    questions[1]["tables_involved"] *= 4
    path.write_text(json.dumps(questions))
    options = SftOptions(out=tmp_path / "runs")
    shown = run_here(config, options, client, monkeypatch, kind=SftJob)
    assert "1 over the step budget" in shown

    short = config.override(max_context_tokens=config.max_new_tokens + 1)
    with pytest.raises(RunError, match=r"no demonstration is left.*longer than the context window"):
        run_here(short, options, client, monkeypatch, kind=SftJob)
    terse = config.override(max_new_tokens=2)
    with pytest.raises(
        RunError, match=r"no demonstration is left.*an action longer than max_new_tokens"
    ):
        run_here(terse, options, client, monkeypatch, kind=SftJob)
    with pytest.raises(RunError, match=r"no demonstration is left.*not correct"):
        run_here(config, options, FakeClient(), monkeypatch, kind=SftJob)


def keep(folder: Path, *episodes: EpisodeRecord) -> None:
    append_records(Run(folder), episodes)


def test_the_demonstrations_of_two_sources(config, tmp_path, client, monkeypatch):
    """Each episode once, and no more than the rows."""
    recorded = tmp_path / "recorded"
    actions = ["QUERY: SELECT COUNT(*) FROM orders WHERE price > 0.0", "ANSWER: 40"]
    oracles = ["DESCRIBE: orders", "QUERY: SELECT COUNT(*) FROM orders WHERE price > 1.5"]
    oracles += ["ANSWER: 39"]  # as the oracle does it
    keep(
        recorded,
        record(question_id="train-shop-0", actions=actions),
        record(question_id="train-shop-1", actions=oracles),
    )
    options = SftOptions(out=tmp_path / "runs", sources=(f"run:{recorded}", "oracle"))
    for rows, expected in ((0, {f"run:{recorded}": 2, "oracle": 7}), (1, {f"run:{recorded}": 1})):
        one = config.override(max_steps=1)
        run_here(one, replace(options, rows=rows), client, monkeypatch, kind=SftJob)
        assert read_json(latest(tmp_path).summary)["sft"]["demonstrations"] == expected


def test_a_failed_query_of_a_recorded_episode_is_corrected(config, tmp_path, client, monkeypatch):
    recorded = tmp_path / "recorded"
    failed = "QUERY: SELECT COUNT(cost) FROM orders WHERE price > 0.0"
    line = {
        "question_id": "train-shop-0",
        "outcome": "wrong",
        "actions": [failed, failed, "ANSWER: 1"],
        "parts": [{"step_cost": -0.02}, {"repeat": -0.03}, {"exec_ok": 0.02}],
    }
    keep(recorded, record(**line))
    source = f"corrected:{recorded}"
    options = SftOptions(out=tmp_path / "runs", sources=(source,))
    run_here(config.override(max_steps=1), options, client, monkeypatch, kind=SftJob)
    (row,) = read_lines(latest(tmp_path).path / DEMONSTRATIONS)
    gold = "QUERY: SELECT COUNT(*) FROM orders WHERE price > 0.0"
    assert row["actions"] == [failed, "DESCRIBE: orders", gold, "ANSWER: 40"]
    assert (row["source"], sum(row["learn"]) > 0) == (source, True)


@pytest.mark.parametrize("tokenizer_of", [tiny_tokenizer, real_tokenizer])
@pytest.mark.parametrize("family", FAMILIES)
def test_failed_actions_and_the_context_are_not_learnt(config, family, tokenizer_of, client):
    tokenizer = tokenizer_of(family)
    actions = (
        "QUERY: SELECT cost FROM orders",
        "DESCRIBE: order",
        "DESCRIBE: orders",
        "QUERY: SELECT COUNT(*) FROM orders WHERE price > 0.0",
        "ANSWER: 40",
    )
    for context, first in ((0, 2), (3, 3)):
        script = Script("run:x", "train-shop-0", "shop", actions, context=context)
        (row,), dropped = demonstrate([script], 0, tokenizer, config, 1024, client)
        assert not dropped
        learnt = [token for token, learn in zip(row.ids, row.learn, strict=True) if learn]
        expected = "".join(f"{action}<|im_end|>" for action in actions[first:])
        assert tokenizer.decode(learnt) == expected
        assert len(row.ids) == len(row.learn)


def test_the_settings_are_those_of_a_warm_start():
    choice, full = warm_start_config(None, {})
    assert choice.preset == "offline"
    assert (full.learning_rate, full.lr_scheduler, full.max_steps) == (LEARNING_RATE, "linear", -1)
    assert full.max_context_tokens == GRPOConfig.preset("offline").max_context_tokens
    large, here = "qwen2.5-coder-0.5b", {"model_name": OFFLINE_MODEL}
    assert warm_start_config(large, here)[1].learning_rate == LEARNING_RATE
    _, whole = warm_start_config(large, {**here, "lora_rank": "0"})
    assert whole.learning_rate == LARGE_LEARNING_RATE
    assert warm_start_config(None, {"learning_rate": "1e-5"})[1].learning_rate == 1e-5


def test_an_adapter_that_goes_on_learns_slower(tmp_path):
    config = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
    (tmp_path / "adapter_model.safetensors").touch()
    for rank, rate in ((16, FURTHER_LEARNING_RATE), (8, LEARNING_RATE)):  # of 8, a new one begins
        (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "r": rank}))
        settings = {"model_name": str(tmp_path), "base_model": OFFLINE_MODEL, "lora_rank": 16}
        assert warm_start_config(None, settings)[1].learning_rate == rate
