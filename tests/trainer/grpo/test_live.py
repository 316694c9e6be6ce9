"""The live view of a notebook: what it shows, and that training does not notice it."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shared.run_stats import wilson_interval
from tests.trainer.conftest import FakeClient, record
from tests.trainer.small_job import trainer_of
from trainer.config.settings import GRPOConfig
from trainer.grpo import live
from trainer.grpo.live import LiveVisualizationCallback, episode_markdown
from trainer.run.inputs import JobOptions, load_inputs
from trainer.run.players import model_play
from trainer.runtime.training import run_training_with_metrics

pytest.importorskip("IPython")


class Notebook:
    """What cells show, in the order in which it was first shown, and what replaced it."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.updated: list[Any] = []

    def display(self, content: Any, display_id: bool) -> Any:
        assert display_id
        self.shown.append(content)
        return SimpleNamespace(update=self.updated.append)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setattr("IPython.display.display", made.display)
    monkeypatch.setattr(live, "LEAST_STEPS", 1)
    return made


@pytest.mark.parametrize(("steps", "drawn", "measured"), [(70, 1, 10), (430, 4, 43)])
def test_it_works_as_often_in_a_run_of_any_length(small, monkeypatch, steps, drawn, measured):
    inputs = load_inputs(small, JobOptions(), with_model=False)
    view = LiveVisualizationCallback(small, inputs, lambda *_: [], baselines={})
    found: dict[str, list[int]] = {"draw": [], "measure": []}
    monkeypatch.setattr(view, "_draw", lambda state: found["draw"].append(state.global_step))
    monkeypatch.setattr(view, "_measure", lambda state: found["measure"].append(state.global_step))
    state = SimpleNamespace(global_step=0, max_steps=steps)
    for step in range(steps):
        state.global_step = step
        view.on_step_begin(None, state, None)
    state.global_step = steps
    view.on_train_end(None, state, None)
    assert found["draw"] == sorted({*range(0, steps, drawn), steps})
    assert found["measure"] == sorted({*range(0, steps, measured), steps})


def trained(small: GRPOConfig, folder: Path, client: FakeClient | None) -> tuple[Any, Any]:
    """Train two steps, with a view if it has a client; return the weights and the view."""
    config = small.override(max_steps=2, output_dir=folder)
    inputs, view = load_inputs(config, JobOptions()), None
    if client is not None:
        play = model_play(inputs.model, inputs.tokenizer, config, client, "greedy")
        view = LiveVisualizationCallback(config, inputs, play, baselines={})
    trainer = trainer_of(
        inputs.model, inputs.tokenizer, config, callbacks=[] if view is None else [view]
    )
    run_training_with_metrics(trainer)
    return inputs.model.state_dict(), view


def test_training_is_the_same_with_it(small, tmp_path, notebook, monkeypatch):
    charts: list[Any] = []
    draw = live.png
    monkeypatch.setattr(live, "png", lambda *given: charts.append(given[0]) or draw(*given))
    watched, view = trained(small, tmp_path / "one", FakeClient())
    unwatched, _ = trained(small, tmp_path / "two", None)
    assert view.failures == 0
    for name, value in unwatched.items():
        assert torch.equal(watched[name], value)
    # one picture and one episode, replaced in place
    assert [type(one).__name__ for one in notebook.shown] == ["Image", "Markdown"]
    assert [type(one).__name__ for one in notebook.updated] == ["Image", "Markdown"] * 2
    assert notebook.shown[0].data.startswith(b"\x89PNG")
    asked = [one.data.split(": ")[1] for one in (notebook.shown[1], *notebook.updated[1::2])]
    assert len({text.split(" on ")[0] for text in asked}) == 3  # the eval questions take turns
    assert all(text.startswith("eval-") for text in asked)
    reward, success = charts[-1]
    assert [point.x for point in reward.series[0].points] == [1, 2]
    measured = success.series[-1].points
    assert [point.x for point in measured] == [0, 1, 2]
    assert measured[0].high == wilson_interval(round(4 * measured[0].y), 4)[1]


@pytest.mark.usefixtures("blank_charts")
@pytest.mark.parametrize(("broken", "shown"), [("png", 0), ("evaluate", 1)])
def test_a_failure_is_logged_once_and_counted_and_training_continues(
    small, tmp_path, notebook, monkeypatch, caplog, broken, shown
):
    def fail(*args: Any, **options: Any) -> Any:
        raise RuntimeError("no font")

    monkeypatch.setattr(live, broken, fail)
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        _, view = trained(small, tmp_path, FakeClient())
    assert [one.levelname for one in caplog.records if "no font" in one.getMessage()] == ["WARNING"]
    assert view.failures == 3
    assert len(notebook.shown) == shown  # what can be drawn is


def test_an_episode_is_shown_literally():
    nasty = "ANSWER: <script>alert(1)</script> `|` [red]\n```\n# heading"
    episode = record(outcome="correct", turns=((nasty, "x" * 5000), ("ANSWER: 1", "")))
    heading, _, *block, _, end = episode_markdown(1, "<b>?", episode).splitlines()
    assert heading.startswith("## After 1 step, greedy: ")
    assert "correct" in end
    assert all(line.startswith("    ") for line in block)  # a code block
    texts = [line[4:] for line in block]
    assert texts[:4] == ["<b>?", *(f"> {line}" for line in nasty.splitlines())]
    assert texts[4:6] == ["x" * 5000, "> ANSWER: 1"]
