"""The live display in a terminal: it fits, also without Unicode, and says what it shows."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.trainer.grpo.live.live_data import episode
from trainer.grpo.live.snapshot import LiveSnapshot, Trace, reward_chart
from trainer.grpo.live.terminal import Dashboard, chart_lines, trace_lines


def test_a_chart_has_its_axes_curve_and_legend(snapshot: LiveSnapshot) -> None:
    console = Console(file=io.StringIO(), width=80)
    with console.capture() as shown:
        console.print(chart_lines(reward_chart(snapshot), 60, 12))
    assert "step 20" in shown.get()
    assert any("⠀" < char <= "⣿" for char in shown.get())  # Braille dots
    assert "] running mean of 9 log events" in shown.get()
    assert "━ random 0.10 [" in shown.get()


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 16), (30, 8), (200, 60)])
def test_the_dashboard_fits_any_terminal(snapshot: LiveSnapshot, width: int, height: int) -> None:
    """A frame that is higher or wider than the terminal would scroll at every redraw."""
    for shown in (LiveSnapshot(steps=20), replace(snapshot, traces=()), snapshot):
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            width=width,
            height=height,
            legacy_windows=False,
        )
        lines = console.render_lines(Dashboard(shown), pad=False)
        assert len(lines) <= height - 1
        assert all(sum(segment.cell_length for segment in line) <= width for line in lines)


def test_the_dashboard_says_what_it_shows(snapshot: LiveSnapshot) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    with console.capture() as shown:
        console.print(Dashboard(snapshot))
    for text in (
        "step 12 of 20",
        "running mean of 9",
        "95 % Wilson",
        "random",
        "before training",
        "QUERY: SELECT 1",
    ):
        assert text in shown.get()


def test_without_unicode_it_is_drawn_in_ascii(snapshot: LiveSnapshot) -> None:
    buffer = io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding="ascii")
    console = Console(file=file, force_terminal=True, width=120, height=40)
    console.print(Dashboard(snapshot))  # a character that ASCII lacks would raise
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
