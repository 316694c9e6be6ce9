"""Where a live display goes: a notebook, a terminal or files."""

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from tests.trainer.grpo.live.live_data import episode
from trainer.grpo.live.displays import (
    FilesDisplay,
    NotebookDisplay,
    TerminalDisplay,
    choose_display,
    in_notebook,
    trace_html,
)
from trainer.grpo.live.snapshot import LiveSnapshot, Trace
from trainer.run.console import Bar, bar


def test_in_a_terminal_the_bar_and_the_display_are_one_frame(snapshot: LiveSnapshot) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    with console.capture() as shown, bar(console, "GRPO", 20) as progress:
        assert progress.moves
        display = choose_display("auto", progress, Path("nowhere"))
        assert isinstance(display, TerminalDisplay)
        display.draw(snapshot, {"reward"})
        progress.to(12, "reward 1.2")
    frame = shown.get()
    assert frame.index("step 12 of 20") < frame.rindex("reward 1.2")
    assert "\x1b[2J" not in frame  # the screen is never cleared: it would flicker


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
    display = NotebookDisplay()
    display.draw(snapshot, {"reward", "success", "trace"})
    assert [type(one).__name__ for one in shown] == ["Image", "HTML"]
    display.draw(snapshot, {"reward"})
    display.draw(snapshot, {"trace"})
    assert len(shown) == 2
    assert [type(one).__name__ for one in updated] == ["Image", "HTML"]


def test_headless_it_writes_files_of_what_changed(snapshot: LiveSnapshot, tmp_path: Path) -> None:
    display = choose_display(
        "auto", Bar(Console(file=io.StringIO()), "GRPO", 20), tmp_path / "live"
    )
    assert isinstance(display, FilesDisplay)
    display.draw(snapshot, {"reward"})
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["reward.png"]
    display.draw(snapshot, {"success", "trace"})
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == [
        "reward.png",
        "success.png",
        "traces.md",
    ]


@pytest.mark.parametrize("kind", ["notebook", "terminal"])
def test_a_display_that_is_not_available_becomes_files(
    kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not in_notebook()
    with caplog.at_level(logging.WARNING, "trainer.grpo.live"):
        assert isinstance(choose_display(kind, None, tmp_path), FilesDisplay)
    assert kind in caplog.text
    assert str(tmp_path) in caplog.text


def test_off_is_no_display(tmp_path: Path) -> None:
    assert choose_display("off", None, tmp_path) is None


def test_a_trace_as_html_is_escaped() -> None:
    nasty = "ANSWER: <script>alert(1)</script> [red]"
    page = trace_html(Trace(3, "<b>?", episode(1, action=nasty, shown="x" * 5000)))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "x" * 5000 in page
