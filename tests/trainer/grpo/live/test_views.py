"""What a live view draws: numbers into curves, curves into PNGs and characters, and where they go."""

import io
import itertools
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from shared.run_stats import Rate
from trainer.evaluation.evaluate import EvalResult
from trainer.grpo.live.figures import picture
from trainer.grpo.live.scene import (
    Scene,
    Trace,
    job_curve,
    level_text,
    reward_curves,
    reward_levels,
    success_curves,
    success_levels,
    trace_heading,
    trace_markdown,
)
from trainer.grpo.live.text import Canvas, Dashboard, trace_lines
from trainer.grpo.live.views import (
    FilesView,
    NotebookView,
    TerminalView,
    choose_view,
    in_notebook,
    trace_html,
)
from trainer.run.console import Bar
from trainer.run.records import EpisodeRecord, Turn
from trainer.run.statistics import mean_interval

ROWS = [{"step": step, "reward": 0.1 * step, "loss": 0.0} for step in range(1, 13)]
POINTS = [
    {"step": 0, "train": Rate(1, 3).as_dict(), "eval": Rate(0, 3).as_dict()},
    {"step": 10, "train": Rate(3, 3).as_dict(), "eval": Rate(0, 0).as_dict()},
]


def episode(
    number: int, *, correct: bool = True, action: str = "QUERY: SELECT 1", shown: str = "1"
) -> EpisodeRecord:
    return EpisodeRecord(
        question_id=f"q{number}",
        database="farm",
        difficulty="easy",
        part="unseen",
        outcome="correct" if correct else "wrong",
        steps=2,
        correctness=float(correct),
        progress=0.5,
        operational=-0.02,
        reward=1.055 if correct else 0.055,
        parse_failures=0,
        env_errors=0,
        context_overflow=False,
        turns=(Turn(action, shown), Turn("ANSWER: 1", "")),
    )


def result(right: int, n: int) -> EvalResult:
    return EvalResult(
        "sampled", tuple(episode(number, correct=number < right) for number in range(n)), 1.0
    )


@pytest.fixture
def scene() -> Scene:
    return Scene(
        title="GRPO of tiny, seed 1",
        step=12,
        steps=20,
        rows=ROWS,
        points=POINTS,
        questions={"train": 3, "eval": 3},
        traces=[Trace(10, "How many animals?", episode(1))],
        baselines={
            "random": {"sampled": result(1, 20)},
            "before": {"greedy": result(8, 20), "sampled": result(6, 20)},
        },
    )


def test_reward_is_smoothed_and_its_band_is_of_the_same_window(scene: Scene) -> None:
    raw, smooth = reward_curves(scene)
    assert raw.values[:2] == (0.1, 0.2)
    assert smooth.values[0] == pytest.approx(0.3)  # of steps 1 to 5
    assert smooth.values[5] == pytest.approx(0.6)  # of 2 to 10
    step, low, high = smooth.band[5]
    assert step == 6
    assert (low, high) == pytest.approx(mean_interval([0.1 * one for one in range(2, 11)]))
    assert reward_curves(replace(scene, rows=ROWS[:2]))[1].band == ()  # two values tell nothing


def test_success_has_wilson_bands_and_no_point_of_nothing(scene: Scene) -> None:
    curves = success_curves(scene)
    assert curves["train"].values == (1 / 3, 1.0)
    assert curves["train"].band[0][1:] == pytest.approx(Rate(1, 3).ci95)
    assert curves["eval"].steps == (0.0,)  # after 10 steps all were lost


def test_the_jobs_eval_curve_is_taken_up(scene: Scene) -> None:
    assert job_curve(scene) is None
    curve = job_curve(
        replace(scene, rows=[*ROWS, {"step": 9, "eval_n": 32, "eval_greedy_success": 0.5}])
    )
    assert curve is not None
    assert curve.label == "eval, greedy, 32 questions"
    assert curve.band[0][1:] == pytest.approx(Rate(16, 32).ci95)


def test_baselines_are_whole_evaluations_with_intervals(scene: Scene) -> None:
    random, untrained = success_levels(scene)
    assert (random.name, random.value, random.interval) == ("random", 0.05, Rate(1, 20).ci95)
    assert (untrained.name, untrained.value) == ("untrained", 0.4)  # greedy, as the curves are
    _, sampled = reward_levels(scene)
    # sampled, as training's episodes are
    assert sampled.value == pytest.approx((6 * 1.055 + 14 * 0.055) / 20)
    assert level_text(untrained, ".0%") == "untrained 40% [22%, 61%]"


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(imread(io.BytesIO(png), format="png"))


def test_every_part_of_the_picture_is_drawn(scene: Scene) -> None:
    stages = [
        empty := Scene(steps=20),
        rows := replace(empty, rows=ROWS),
        points := replace(rows, points=POINTS),
        levels := replace(points, baselines=scene.baselines),
        replace(levels, rows=[*ROWS, {"step": 9, "eval_n": 32, "eval_greedy_success": 0.5}]),
    ]
    for before, after in itertools.pairwise(pixels(picture(one)) for one in stages):
        assert not np.array_equal(before, after)


def test_dots_are_where_braille_has_them() -> None:
    canvas = Canvas(2, 1)
    canvas.dot(0, 0, "red")
    canvas.dot(3, 3, "red")
    canvas.dot(4, 0, "red")  # outside
    canvas.dot(0, -1, "red")
    assert [line.plain for line in canvas.lines()] == ["⡀⠈"]
    canvas.dot(0, 3, "red")
    assert next(canvas.lines()).plain[0] == "⡁"
    canvas.layer()
    canvas.dot(1, 0, "blue")  # covers what was in that character
    assert next(canvas.lines()).plain[0] == "⢀"


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 16), (30, 8), (200, 60)])
def test_the_dashboard_fits_any_terminal(scene: Scene, width: int, height: int) -> None:
    """A frame that is higher or wider than the terminal would scroll at every redraw."""
    dashboard = Dashboard()
    for shown in (Scene(steps=20), replace(scene, traces=()), scene):
        dashboard.show(shown)
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            width=width,
            height=height,
            legacy_windows=False,
        )
        lines = console.render_lines(dashboard, pad=False)
        assert len(lines) <= height - 1
        assert all(sum(segment.cell_length for segment in line) <= width for line in lines)


def test_the_dashboard_says_what_it_shows(scene: Scene) -> None:
    dashboard, console = (
        Dashboard(),
        Console(file=io.StringIO(), force_terminal=True, width=120, height=40),
    )
    dashboard.show(scene)
    with console.capture() as shown:
        console.print(dashboard)
    for text in (
        "step 12 of 20",
        "running mean of 9",
        "95 % Wilson",
        "random",
        "untrained",
        "QUERY: SELECT 1",
    ):
        assert text in shown.get()


def test_without_unicode_it_is_drawn_in_ascii(scene: Scene) -> None:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding="ascii")
    dashboard, console = Dashboard(), Console(file=file, force_terminal=True, width=120, height=40)
    dashboard.show(scene)
    console.print(dashboard)  # a character that ASCII lacks would raise
    file.flush()
    assert b"step 12 of 20" in buffer.getvalue()


def test_what_does_not_fit_of_an_episode_is_counted() -> None:
    trace = Trace(3, "?", episode(1, shown="a\nb"))
    assert [line.plain.strip() for line in trace_lines(trace, 80, 20)][:3] == [
        "?",
        "1. QUERY: SELECT 1",
        "→ a ⏎ b",
    ]
    short = trace_lines(trace, 80, 4)
    assert len(short) == 4
    assert "2 more lines" in short[2].plain
    assert "correct" in short[3].plain


def test_in_a_terminal_the_bar_and_the_view_are_one_frame(scene: Scene) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    with console.capture() as shown:
        bar = Bar(console, "GRPO", 20)
        assert bar.moves
        view = choose_view("auto", bar, Path("nowhere"))
        assert isinstance(view, TerminalView)
        view.draw(scene, {"reward"})
        bar.to(12, "reward 1.2")
        bar.stop()
    frame = shown.get()
    assert frame.index("step 12 of 20") < frame.rindex("reward 1.2")
    assert "\x1b[2J" not in frame  # the screen is never cleared: it would flicker


def test_in_a_notebook_it_is_redrawn_in_place(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("IPython")
    shown: list[Any] = []
    updated: list[Any] = []

    def display(content: Any, display_id: bool) -> Any:
        assert display_id
        shown.append(content)
        return SimpleNamespace(update=updated.append)

    monkeypatch.setattr("IPython.display.display", display)
    view = NotebookView()
    view.draw(scene, {"reward", "success", "trace"})
    assert [type(one).__name__ for one in shown] == ["Image", "HTML"]
    view.draw(scene, {"reward"})
    view.draw(scene, {"trace"})
    assert len(shown) == 2
    assert [type(one).__name__ for one in updated] == ["Image", "HTML"]


def test_headless_it_writes_files_of_what_changed(scene: Scene, tmp_path: Path) -> None:
    bar = Bar(Console(file=io.StringIO()), "GRPO", 20)
    view = choose_view("auto", bar, tmp_path / "live")
    assert isinstance(view, FilesView)
    view.draw(scene, {"reward"})
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["reward.png"]
    view.draw(scene, {"success", "trace"})
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == [
        "reward.png",
        "success.png",
        "traces.md",
    ]


@pytest.mark.parametrize("kind", ["notebook", "terminal"])
def test_a_view_that_can_not_be_had_becomes_files(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not in_notebook()
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        assert isinstance(choose_view(kind, None, tmp_path), FilesView)
    assert kind in caplog.text
    assert str(tmp_path) in caplog.text


def test_off_is_no_view(tmp_path: Path) -> None:
    assert choose_view("off", None, tmp_path) is None


def test_a_trace_shows_all_letter_by_letter() -> None:
    nasty = "ANSWER: <script>alert(1)</script> `|` [red]\n```\n# heading"
    trace = Trace(3, "<b>?", episode(1, action=nasty, shown="x" * 5000))
    page = trace_html(trace)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "x" * 5000 in page
    text = trace_markdown(trace)
    assert all(f"        {line}\n" in text for line in nasty.splitlines())  # a code block
    assert "✅ correct after 2 steps, reward 1.0" in text
    assert text.startswith("## After 3 steps, greedy: q1 on farm (unseen), easy")
    assert trace_heading(replace(trace, step=1)).startswith("After 1 step, ")
