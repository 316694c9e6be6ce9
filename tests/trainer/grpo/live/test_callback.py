"""The live view in whole, small jobs: what it leaves, and that nothing else notices it."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.conftest import FakeClient
from tests.trainer.small_job import StoppingClient, begin, comparable, latest, uninterrupted
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions, load_inputs
from trainer.grpo.live import callback
from trainer.grpo.live.callback import LiveVisualizationCallback
from trainer.grpo.live.displays import REWARD, SUCCESS, TRACE
from trainer.rollout.loop import sample_random_baseline
from trainer.run.folder import Run, open_run, read_json, read_lines
from trainer.runtime.interrupt import Interrupted

blank_charts = pytest.mark.usefixtures("blank_charts")


@pytest.fixture
def live(small: GRPOConfig, monkeypatch: pytest.MonkeyPatch) -> GRPOConfig:
    """As `small`, with pictures in files, at each of its 3 steps."""
    monkeypatch.setattr(callback, "LEAST_STEPS", dict.fromkeys(callback.LEAST_STEPS, 1))
    monkeypatch.setattr(callback, "EPISODES", 2)
    return replace(small, live_view="files")


def measured(run: Run) -> list[dict[str, Any]]:
    return list(read_lines(run.live / "measured.jsonl"))


@pytest.mark.parametrize(("steps", "intervals"), [(70, (1, 10, 20)), (430, (4, 43, 86))])
def test_each_part_is_due_as_often_in_a_run_of_any_length(
    small: GRPOConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    intervals: tuple[int, ...],
) -> None:
    inputs = load_inputs(small, JobOptions(), with_model=False)

    def play(prompts: Any, before: Any = None, /) -> Any:
        return sample_random_baseline(prompts, small, FakeClient())

    drawn: dict[str, list[int]] = {part: [] for part in (REWARD, TRACE, SUCCESS)}

    def draw(snapshot: Any, changed: set[str]) -> None:
        for part in changed:
            drawn[part].append(snapshot.step)

    monkeypatch.setattr(callback, "choose_display", lambda *_: draw)
    view = LiveVisualizationCallback(small, inputs, play, baselines={}, folder=tmp_path)
    state = SimpleNamespace(global_step=0, max_steps=steps, log_history=[])
    for step in range(steps):
        state.global_step = step
        view.on_step_begin(None, state, None)
    state.global_step = steps
    view.on_train_end(None, state, None)
    assert view.failures == 0
    for part, every in zip((REWARD, TRACE, SUCCESS), intervals, strict=True):
        assert drawn[part] == sorted({*range(0, steps, every), steps})


def test_a_watched_run_trains_and_measures_what_an_unwatched_one_does(
    small: GRPOConfig, live: GRPOConfig, tmp_path: Path
) -> None:
    begin(live, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)  # weights, rates, metrics, episodes
    assert read_json(run.summary)["live_failures"] == 0

    points = [row for row in measured(run) if "train" in row]
    assert [row["step"] for row in points] == [0, 1, 2, 3]
    assert all(row[split]["n"] == 2 for row in points for split in ("train", "eval"))
    traces = [row for row in measured(run) if "trace" in row]
    assert [row["step"] for row in traces] == [0, 1, 2, 3]
    # the eval questions take turns
    assert len({row["trace"]["question_id"] for row in traces}) == 2
    assert all(row["trace"]["question_id"].startswith("eval-") for row in traces)
    for name in ("reward.png", "success.png"):
        assert (run.live / name).read_bytes().startswith(b"\x89PNG")
    page = (run.live / "traces.md").read_text()
    assert page.count("\n## After ") == 4
    for row in traces:
        assert all(
            line in page for turn in row["trace"]["turns"] for line in turn["action"].splitlines()
        )


@blank_charts
def test_a_failing_display_is_logged_once_and_counted_and_training_continues(
    small: GRPOConfig,
    live: GRPOConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: Any) -> bytes:
        raise RuntimeError("no font")

    monkeypatch.setattr("trainer.grpo.live.displays.png", fail)
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        begin(live, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)
    assert [record.levelname for record in caplog.records if "no font" in record.getMessage()] == [
        "WARNING"
    ]
    failed = [row for row in measured(run) if "failed" in row]
    assert [row["step"] for row in failed] == [0, 1, 2, 3]
    assert read_json(run.summary)["live_failures"] == 4


@blank_charts
def test_training_continues_after_a_failing_measurement(
    small: GRPOConfig, live: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr("trainer.grpo.live.callback.evaluate", fail)
    begin(live, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)
    assert read_json(run.summary)["live_failures"] == 4
    assert (run.live / "reward.png").exists()  # what can be drawn is


@blank_charts
def test_lost_episodes_are_in_no_rate(
    live: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "EPISODES", 12)
    lost = FakeClient(failing={"eval-shop-0": 1})
    begin(replace(live, max_lost_fraction=0.5), tmp_path, lost).run()
    first = next(row for row in measured(latest(tmp_path)) if "train" in row)
    assert (first["train"]["n"], first["eval"]["n"], first["lost"]) == (8, 11, 1)


# reset_many calls: 1 random, 2 and 3 before, 4 the view's at step 0, then a step's rollout, small
# eval and view
@blank_charts
@pytest.mark.parametrize(
    "at", [6, *(pytest.param(other, marks=pytest.mark.slow) for other in (4, 5, 7, 8))]
)
def test_a_resumed_run_keeps_its_measurements(
    small: GRPOConfig, live: GRPOConfig, tmp_path: Path, at: int
) -> None:
    with pytest.raises(Interrupted):
        begin(live, tmp_path, StoppingClient(at, Interrupted())).run()
    begin(live, tmp_path, FakeClient(), resume=open_run(tmp_path / "runs" / "latest")).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)
    for part in ("train", "trace"):
        assert [row["step"] for row in measured(run) if part in row] == [0, 1, 2, 3]
    # those of the first session with them
    assert (run.live / "traces.md").read_text().count("\n## After ") == 4


@blank_charts
def test_training_continues_with_an_unreadable_record(live: GRPOConfig, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        begin(live, tmp_path, StoppingClient(9, Interrupted())).run()
    run = latest(tmp_path)
    (run.live / "measured.jsonl").write_text("not JSON\n")
    begin(live, tmp_path, FakeClient(), resume=run).run()
    summary = read_json(run.summary)
    assert (summary["train_steps"], summary["live_failures"]) == (3, 1)
    assert (run.live / "measured.damaged").read_text() == "not JSON\n"  # nothing is lost
