"""Resuming jobs that were stopped or had finished."""

import json
import math
import shlex
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import (
    StoppingClient,
    begin,
    check_costs,
    comparable,
    latest,
    run_here,
    served,
    uninterrupted,
)
from trainer.errors import RunError, TrainingDiverged
from trainer.grpo.masked_trainer import MaskedGRPOTrainer
from trainer.rollout import prompts
from trainer.rollout.dataset import question_id_of
from trainer.rollout.episode import EpisodeObserver
from trainer.rollout.generators.policies import RandomPolicy
from trainer.rollout.loop import play_episodes
from trainer.rollout.row import RolloutRow
from trainer.run.folder import Run, open_run, read_json, read_lines
from trainer.run.inputs import JobOptions, load_inputs
from trainer.run.records import read_records
from trainer.run.resume import check_resumed_data, drop_after, resumed_settings
from trainer.runtime.interrupt import Interrupted

pytestmark = pytest.mark.usefixtures("blank_charts")


# reset_many calls of this run: 1 random, 2 and 3 before, 4 to 10 training with its small evals, 11
# and 12 after
@pytest.mark.parametrize(
    "at",
    # 8 and 9 are as 5 and 6, a step later
    [
        pytest.param(at, marks=() if at == 7 else pytest.mark.slow)
        for at in (1, 2, 3, 4, 5, 6, 7, 10, 11, 12)
    ],
)
def test_a_stopped_run_goes_on_to_the_same_result(small, tmp_path, at):
    with pytest.raises(Interrupted):
        begin(small, tmp_path, StoppingClient(at, Interrupted())).run()
    run = latest(tmp_path)
    assert not run.summary.exists()
    config, _ = resumed_settings(run, (), {})
    assert config == small
    client = StoppingClient(0, Interrupted())
    begin(config, tmp_path, client, resume=open_run(tmp_path / "runs" / "latest")).run()
    assert comparable(run) == uninterrupted(small, tmp_path)
    metrics = list(read_lines(run.metrics))
    assert metrics == sorted(metrics, key=lambda row: int(row["step"]))
    steps, points = ([row for row in metrics if key in row] for key in ("success", "eval_n"))
    check_costs(read_json(run.summary), steps, points)  # training time continues
    assert client.resets < 12 or at == 1  # earlier measurements are read back
    assert read_json(run.summary)["sessions"] == 2


def test_a_measurement_goes_on_where_it_stopped(small, tmp_path):
    asked: list[list[str]] = []

    def play(prompts: Any, repeats: Any, observer: EpisodeObserver) -> list[RolloutRow]:
        asked.append([question_id_of(prompt) for prompt in prompts])
        rows = play_episodes(prompts, None, None, small, client=FakeClient(), policy=RandomPolicy())
        if len(asked) == 1:
            observer.on_end(rows[:5])
            raise Interrupted
        return rows

    job = begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    with pytest.raises(Interrupted):
        job._measure("before", "sampled", play)
    with run.episodes.open("a") as file:
        file.write('{"question_id": "ev')  # a crash in the middle of a line
    drop_after(run, 0, trained=False)
    job = begin(small, tmp_path, FakeClient(), resume=run)
    job._measure("before", "sampled", play)
    assert asked[1] == asked[0][5:]
    episodes = job._results["before"]["sampled"].episodes
    assert [one.question_id for one in episodes] == asked[0]
    assert list(read_records(run)) == list(episodes)


@pytest.mark.slow
def test_a_step_that_broke_off_is_in_no_row(small, tmp_path, monkeypatch):
    """Step 3 is interrupted in its update while step 2 waits for its log event: its episodes are
    recorded once."""
    seldom, compute, calls = (replace(small, logging_steps=10), MaskedGRPOTrainer._compute_loss, [])

    def poisoned(*arguments: Any) -> Any:
        calls.append(1)
        return compute(*arguments) * (math.nan if len(calls) == 6 else 1.0)

    monkeypatch.setattr(MaskedGRPOTrainer, "_compute_loss", poisoned)
    with pytest.raises(TrainingDiverged, match="step 3"):
        begin(seldom, tmp_path, FakeClient()).run()
    monkeypatch.setattr(MaskedGRPOTrainer, "_compute_loss", compute)
    run = latest(tmp_path)
    begin(seldom, tmp_path, FakeClient(), resume=run).run()
    rows = [row for row in read_lines(run.metrics) if "success" in row]
    assert [(row["step"], row["episodes"]) for row in rows] == [(2, 16), (3, 8)]
    lines = [line for line in read_lines(run.episodes) if line["phase"] == "train"]
    for row, steps in zip(rows, ((1, 2), (3,)), strict=True):
        rewards = [line["reward"] for line in lines if line["step"] in steps]
        assert len(rewards) == row["episodes"]
        assert row["reward"] == pytest.approx(sum(rewards) / len(rewards), abs=1e-5)


def test_more_steps_may_follow(small, tmp_path):
    begin(replace(small, max_steps=2), tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    config, _ = resumed_settings(run, (), {"max_steps": "4"})
    assert run.checksums.exists()
    with pytest.raises(Interrupted):
        begin(config, tmp_path, StoppingClient(2, Interrupted()), resume=run).run()
    assert not run.checksums.exists()  # of the shorter run
    assert begin(config, tmp_path, FakeClient(), resume=run).run()["train_steps"] == 4
    steps = [line["step"] for line in read_lines(run.metrics) if "success" in line]
    assert steps == [1, 2, 3, 4]


def test_a_resumed_run_keeps_its_settings_and_its_data(small, tmp_path, data_dir):
    begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    with pytest.raises(RunError, match="seed can't change"):
        resumed_settings(run, (), {"seed": "3"})
    path = data_dir / "questions" / "questions_eval.json"
    path.write_text(path.read_text().replace("How many", "Count the"))
    config, options = resumed_settings(run, (), {})
    assert options.eval_every == 1
    saved = read_json(run.config)
    saved["options"]["eval_every"] = None  # by the run's length
    run.config.write_text(json.dumps(saved))
    assert resumed_settings(run, (), {})[1].eval_every is None
    with pytest.raises(RunError, match="has changed since"):
        check_resumed_data(run, load_inputs(config, options), config)


def test_a_resumed_run_keeps_its_model_and_its_server(small, tmp_path, model, monkeypatch):
    begin(small, tmp_path, FakeClient())
    run = latest(tmp_path)
    inputs = load_inputs(small, JobOptions())
    check_resumed_data(run, inputs, small, served(inputs))
    with pytest.raises(RunError, match=r"environment server at .* has changed since"):
        check_resumed_data(run, inputs, small, served(inputs, "another"))
    monkeypatch.setitem(prompts._SYSTEM_PROMPTS, small.system_prompt, "edited")
    with pytest.raises(RunError, match=r"what the model reads, .* has changed since"):
        check_resumed_data(run, inputs, small, served(inputs))
    monkeypatch.undo()
    next(model.parameters()).data.add_(1.0)
    model.save_pretrained(small.model_name)
    with pytest.raises(RunError, match=f"the model {small.model_name} has changed since"):
        check_resumed_data(run, load_inputs(small, JobOptions()), small)


def test_the_resume_command_can_be_typed_as_it_is_shown(small, tmp_path, monkeypatch):
    urls = ("http://127.0.0.1:9001", "http://127.0.0.1:9002")
    options = JobOptions("offline", tmp_path / "[red]my runs", urls, eval_every=0, eval_points=4)
    early = run_here(small, options, FakeClient(), monkeypatch, error=Interrupted())
    assert "--resume" not in early  # there is nothing to resume yet
    shown = run_here(small, options, StoppingClient(2, Interrupted()), monkeypatch)
    run = open_run(options.out / "latest")
    typed = shlex.split(shown.partition("Resume with:")[2])
    assert typed[:4] == ["python", "-m", "trainer", "train"]
    assert typed[4:] == ["--resume", str(run.path), *(f"--server={url}" for url in urls)]


@pytest.mark.slow
def test_steps_that_wait_for_their_log_event_are_not_lost_with_a_stop(small, tmp_path):
    """A checkpoint after step 2, a stop in the rollout of step 4, and never a step on which a log
    event is due."""
    seldom = replace(small, logging_steps=10, save_steps=2, max_steps=5)
    # 1 random, 2 and 3 before, 4 the first rollout, then two small ones and a rollout
    with pytest.raises(Interrupted):
        begin(seldom, tmp_path, StoppingClient(13, Interrupted())).run()
    run = latest(tmp_path)
    begin(seldom, tmp_path, FakeClient(), resume=run).run()
    rows = [row for row in read_lines(run.metrics) if "success" in row]
    assert [(row["step"], row["episodes"]) for row in rows] == [(2, 16), (3, 8), (4, 8), (5, 8)]
    summary = read_json(run.summary)
    assert summary["cost"]["train_s"] == rows[-1]["train_s"]
    assert summary["cost"]["train_s"] == pytest.approx(
        summary["rollout_s"] + summary["update_s"], abs=1e-2
    )


def test_a_result_without_checkpoints_is_left_alone(small, tmp_path, monkeypatch):
    options = JobOptions("offline", tmp_path / "runs", eval_every=0, eval_points=4)
    one = replace(small, max_steps=1)
    run_here(one, options, FakeClient(), monkeypatch)
    run = latest(tmp_path)
    shutil.rmtree(run.checkpoints)
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match="no checkpoints/ to resume from"):
        run_here(one, options, FakeClient(), monkeypatch, resume=run)
    assert before == {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def test_a_run_that_stopped_while_it_was_sealed_is_not_finished(small, tmp_path, monkeypatch):
    options = JobOptions("offline", tmp_path / "runs", eval_every=0, eval_points=4)
    one = replace(small, max_steps=1)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "seal", Mock(side_effect=Interrupted))
        assert "Resume with:" in run_here(one, options, FakeClient(), monkeypatch)
    run = latest(tmp_path)
    client = StoppingClient(1, Interrupted())
    assert "is finished" not in run_here(one, options, client, monkeypatch, resume=run)
    assert client.resets == 0  # no episode is played again
    assert run.checksums.exists()


def test_server_restarts_are_those_of_all_sessions(small, tmp_path):
    def server(restarts: int) -> Any:
        return SimpleNamespace(restarts=restarts, cpu_s=lambda: 0.0)

    with pytest.raises(Interrupted):
        begin(small, tmp_path, StoppingClient(6, Interrupted()), own=server(2)).run()
    run = latest(tmp_path)
    begin(replace(small, max_steps=1), tmp_path, FakeClient(), resume=run, own=server(1)).run()
    summary = read_json(run.summary)
    assert (summary["server_restarts"], summary["sessions"]) == (3, 2)
