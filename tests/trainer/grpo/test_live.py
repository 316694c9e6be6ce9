"""The live view in whole, small jobs: what it leaves, and that nothing else notices it."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared.run_stats import Rate
from tests.trainer.conftest import FakeClient
from tests.trainer.records import record
from tests.trainer.small_job import StoppingClient, begin, comparable, latest, uninterrupted
from trainer.config import GRPOConfig
from trainer.evaluation.inputs import JobOptions, load_inputs
from trainer.grpo import live
from trainer.grpo.live import LiveVisualizationCallback, trace_markdown
from trainer.rollout.loop import sample_random_baseline
from trainer.run.folder import Run, open_run, read_json, read_lines
from trainer.run.records import Turn
from trainer.runtime.interrupt import Interrupted

blank_charts = pytest.mark.usefixtures("blank_charts")


@pytest.fixture
def watched(small: GRPOConfig, monkeypatch: pytest.MonkeyPatch) -> GRPOConfig:
    """As `small`, with a measurement and a picture at each of its 3 steps."""
    monkeypatch.setattr(live, "LEAST_STEPS", 1)
    monkeypatch.setattr(live, "QUESTIONS", 2)
    return replace(small, live_view=True)


def measured(run: Run) -> list[dict[str, Any]]:
    return list(read_lines(run.live / "measured.jsonl"))


def view_of(small: GRPOConfig, folder: Path) -> LiveVisualizationCallback:
    """Return the view of a job, whose random policy needs no model."""
    inputs = load_inputs(small, JobOptions(), with_model=False)

    def play(prompts: Any, before: Any = None, /) -> Any:
        return sample_random_baseline(prompts, small, FakeClient())

    shown = replace(small, live_view=True)
    return LiveVisualizationCallback(shown, inputs, play, baselines={}, folder=folder)


@pytest.mark.parametrize(("steps", "drawn", "measured"), [(70, 1, 10), (430, 4, 43)])
def test_it_works_as_often_in_a_run_of_any_length(
    small: GRPOConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    drawn: int,
    measured: int,
) -> None:
    view, found = view_of(small, tmp_path), {"draw": list[int](), "measure": list[int]()}
    monkeypatch.setattr(view, "_draw", lambda state: found["draw"].append(state.global_step))
    monkeypatch.setattr(view, "_measure", found["measure"].append)
    state = SimpleNamespace(global_step=0, max_steps=steps, log_history=[])
    for step in range(steps):
        state.global_step = step
        view.on_step_begin(None, state, None)
    state.global_step = steps
    view.on_train_end(None, state, None)
    assert found["draw"] == sorted({*range(0, steps, drawn), steps})
    assert found["measure"] == sorted({*range(0, steps, measured), steps})


def test_a_watched_run_trains_and_measures_what_an_unwatched_one_does(
    small: GRPOConfig, watched: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charts: list[Any] = []
    draw = live.png
    monkeypatch.setattr(live, "png", lambda *given: charts.append(given[0]) or draw(*given))
    begin(watched, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)  # weights, rates, metrics, episodes
    assert read_json(run.summary)["live_failures"] == 0

    rows = measured(run)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row[split]["n"] == 2 for row in rows for split in ("train", "eval"))
    # the eval questions take turns
    assert len({row["trace"]["question_id"] for row in rows}) == 2
    assert all(row["trace"]["question_id"].startswith("eval-") for row in rows)
    assert (run.live / "live.png").read_bytes().startswith(b"\x89PNG")
    page = (run.live / "traces.md").read_text()
    assert page.count("\n## After ") == 4
    for row in rows:
        assert all(
            line in page for turn in row["trace"]["turns"] for line in turn["action"].splitlines()
        )

    reward, success = charts[-1]
    assert [point.x for point in reward.series[0].points] == [1, 2, 3]
    assert {line.label for line in reward.baselines} >= {"random actions"}
    *_, train, evaluation = success.series
    for series, split in ((train, "train"), (evaluation, "eval")):
        assert [point.x for point in series.points] == [0, 1, 2, 3]
        assert series.points[0].y == rows[0][split]["rate"]
        assert series.points[0].high == Rate(round(2 * series.points[0].y), 2).ci95[1]


@blank_charts
@pytest.mark.parametrize(("broken", "left"), [("png", "traces.md"), ("evaluate", "live.png")])
def test_a_failure_is_logged_once_and_counted_and_training_continues(
    small: GRPOConfig,
    watched: GRPOConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
    left: str,
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("no font")

    monkeypatch.setattr(live, broken, fail)
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        begin(watched, tmp_path, FakeClient()).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)
    assert [one.levelname for one in caplog.records if "no font" in one.getMessage()] == ["WARNING"]
    assert read_json(run.summary)["live_failures"] == 4
    assert (run.live / left).exists() == (broken == "evaluate")  # what can be drawn is


@blank_charts
def test_lost_episodes_are_in_no_rate(
    watched: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUESTIONS", 12)
    lost = FakeClient(failing={"eval-shop-0": 1})
    begin(replace(watched, max_lost_fraction=0.5), tmp_path, lost).run()
    first = measured(latest(tmp_path))[0]
    assert (first["train"]["n"], first["eval"]["n"], first["lost"]) == (8, 11, 1)


# reset_many calls: 1 random, 2 and 3 before, 4 the view's at step 0, then a step's rollout, small
# eval and view
@blank_charts
@pytest.mark.parametrize(
    "at", [6, *(pytest.param(other, marks=pytest.mark.slow) for other in (4, 5, 7, 8))]
)
def test_a_resumed_run_keeps_its_measurements(
    small: GRPOConfig, watched: GRPOConfig, tmp_path: Path, at: int
) -> None:
    with pytest.raises(Interrupted):
        begin(watched, tmp_path, StoppingClient(at, Interrupted())).run()
    begin(watched, tmp_path, FakeClient(), resume=open_run(tmp_path / "runs" / "latest")).run()
    run = latest(tmp_path)
    assert comparable(run) == uninterrupted(small, tmp_path)
    assert [row["step"] for row in measured(run)] == [0, 1, 2, 3]
    # those of the first session with them
    assert (run.live / "traces.md").read_text().count("\n## After ") == 4


@blank_charts
def test_in_a_notebook_it_is_redrawn_in_place(
    small: GRPOConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("IPython")
    shown: list[Any] = []
    updated: list[Any] = []

    def display(content: Any, display_id: bool) -> Any:
        assert display_id
        shown.append(content)
        return SimpleNamespace(update=updated.append)

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(live, "in_notebook", lambda: True)
    view = view_of(small, tmp_path)
    state = SimpleNamespace(global_step=0, max_steps=2, log_history=[])
    view.on_step_begin(None, state, None)
    state.global_step = 2
    view.on_train_end(None, state, None)
    assert view.failures == 0
    assert [type(one).__name__ for one in shown] == ["Image", "Markdown"]
    assert [type(one).__name__ for one in updated] == ["Image", "Markdown"]
    assert not (tmp_path / "live.png").exists()


def test_an_episode_is_shown_literally() -> None:
    nasty = "ANSWER: <script>alert(1)</script> `|` [red]\n```\n# heading"
    episode = record(outcome="correct", turns=(Turn(nasty, "x" * 5000), Turn("ANSWER: 1", "")))
    row = {"step": 1, "question": "<b>?", "trace": episode.model_dump()}
    heading, _, *block, _, end = trace_markdown(row).splitlines()
    assert heading.startswith("## After 1 step, greedy: ")
    assert "correct" in end
    assert all(line.startswith("    ") for line in block)  # a code block
    texts = [line[4:] for line in block]
    assert texts[:4] == ["<b>?", *(f"> {line}" for line in nasty.splitlines())]
    assert texts[4:6] == ["x" * 5000, "> ANSWER: 1"]
