"""Where a live display goes: a notebook, a terminal or files, and that it fits there."""

import io
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.trainer.grpo.live.live_data import episode
from trainer.grpo.live.displays import NotebookDisplay, choose_display, trace_html
from trainer.grpo.live.snapshot import LiveSnapshot, Trace
from trainer.grpo.live.terminal import dashboard, trace_lines
from trainer.run.console import Bar


def terminal(width: int, height: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height)


def test_in_a_terminal_the_bar_and_the_display_are_one_frame(
    snapshot: LiveSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")
    console = terminal(120, 40)
    with console.capture() as shown:
        bar = Bar(console, "GRPO", 20)
        display = choose_display("auto", bar, Path("nowhere"))
        assert display is not None
        display(snapshot, {"reward"})
        bar.to(12, "reward 1.2")
        bar.stop()
    frame = shown.get()
    assert frame.index("step 12 of 20") < frame.rindex("reward 1.2")
    assert "\x1b[2J" not in frame  # the screen is never cleared: it would flicker
    for text in ("] running mean of 9", "random 0.10 [", "before training", "QUERY: SELECT 1"):
        assert text in frame
    assert any("⠀" < char <= "⣿" for char in frame)  # a curve of Braille dots


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 20), (200, 60)])
def test_the_dashboard_fits_a_terminal(snapshot: LiveSnapshot, width: int, height: int) -> None:
    """A frame that is higher or wider than the terminal would scroll at every redraw."""
    for shown in (LiveSnapshot(steps=20), replace(snapshot, traces=()), snapshot):
        lines = terminal(width, height).render_lines(dashboard(shown, width, height), pad=False)
        assert len(lines) <= height - 1
        assert all(sum(segment.cell_length for segment in line) <= width for line in lines)


def test_what_does_not_fit_of_an_episode_is_counted() -> None:
    trace = Trace(3, "?", episode(1, shown="a\nb"))
    assert [line.plain.strip() for line in trace_lines(trace, 20)][:3] == [
        "?",
        "1. QUERY: SELECT 1",
        "→ a ⏎ b",
    ]
    short = trace_lines(trace, 4)
    assert len(short) == 4
    assert "2 more lines" in short[2].plain
    assert "correct" in short[3].plain


def test_in_a_notebook_it_is_redrawn_in_place(
    snapshot: LiveSnapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("IPython")
    shown: list[Any] = []
    updated: list[Any] = []

    def display(content: Any, display_id: bool) -> Any:
        assert display_id
        shown.append(content)
        return SimpleNamespace(update=updated.append)

    monkeypatch.setattr("IPython.display.display", display)
    draw = NotebookDisplay()
    draw(snapshot, {"reward", "success", "trace"})
    assert [type(one).__name__ for one in shown] == ["Image", "HTML"]
    draw(snapshot, {"reward"})
    draw(snapshot, {"trace"})
    assert len(shown) == 2
    assert [type(one).__name__ for one in updated] == ["Image", "HTML"]


@pytest.mark.parametrize("kind", ["auto", "notebook", "terminal"])
def test_headless_it_writes_files_of_what_changed(
    snapshot: LiveSnapshot, tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        display = choose_display(kind, Bar(Console(file=io.StringIO()), "GRPO", 20), tmp_path)
    assert (kind == "auto") == (not caplog.text)
    assert display is not None
    display(snapshot, {"reward"})
    assert [path.name for path in tmp_path.iterdir()] == ["reward.png"]
    display(snapshot, {"success", "trace"})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["reward.png", "success.png", "traces.md"]
    assert choose_display("off", None, tmp_path) is None


def test_a_trace_as_html_is_escaped() -> None:
    nasty = "ANSWER: <script>alert(1)</script> [red]"
    page = trace_html(Trace(3, "<b>?", episode(1, action=nasty, shown="x" * 5000)))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "x" * 5000 in page
