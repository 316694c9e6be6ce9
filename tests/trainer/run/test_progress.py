"""What is shown while something plays or trains, and what is kept of it."""

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from shared.models import Outcome
from trainer.rollout.row import RolloutRow
from trainer.run import progress
from trainer.run.progress import Bar, Pace, PlayCounts, PlayProgress, bar


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def log() -> Console:
    return Console(file=io.StringIO(), width=80)


def lines(console: Console) -> list[str]:
    return console.file.getvalue().splitlines()


def row(name: str, turns: int, outcome: Outcome = Outcome.WRONG, repeat: int = 0) -> RolloutRow:
    lost = "gone" if outcome is Outcome.INFRA_FAILED else None
    correct = None if lost else float(outcome is Outcome.CORRECT)
    texts = ["a"] * turns
    return RolloutRow(name, repeat, outcome=outcome, correctness=correct, texts=texts, lost=lost)


def test_a_log_has_a_line_a_minute_and_one_at_the_end(clock):
    console = log()
    with bar(console, "SFT", 10) as shown:
        for step in range(1, 11):
            clock.now += 25.0
            shown.to(step, f"loss {step}")
    assert lines(console) == [
        "SFT: 3/10, 2 min 55 s left, loss 3",
        "SFT: 6/10, 1 min 40 s left, loss 6",
        "SFT: 9/10, 25.0 s left, loss 9",
        "SFT: 10/10, loss 10",
    ]


def test_what_was_done_before_took_no_time(clock):
    """A resumed run of 90 steps did 2 of its last 10 in a minute."""
    console = log()
    with bar(console, "GRPO", None, 90) as shown:
        clock.now += 60.0
        shown.to(92, "", 100)
    assert lines(console) == ["GRPO: 92/100, 4 min 0 s left"]


def test_the_first_minute_of_play_has_a_line_before_any_episode_has_ended(clock):
    console = log()
    paces: list[Pace] = []
    shown = Bar(console, "train (model)", 20)
    play = PlayProgress(shown, 8, total=20, on_pace=paces.append)
    clock.now += 30.0
    play.on_tokens(9000, 0, 0)
    assert lines(console) == []
    clock.now += 30.0
    play.on_tokens(0, 1200, 16)
    # 16 of at most 160 turns
    assert lines(console) == [
        "train (model): 0/20, 9 min 0 s left, 16 turns, 9,000 tokens read, 1,200 written (20/s)"
    ]
    assert paces == [Pace(episode_s=30.0, read_token_s=30 / 9000, episode_tokens=5100.0)]
    clock.now += 61.0
    play.on_end([row(str(number), 2, Outcome.CORRECT) for number in range(8)])
    assert lines(console)[1].startswith("train (model): 8/20, 3 min 1 s left, 16 turns, ")
    assert lines(console)[1].endswith(", success 100.0 %")
    assert len(paces) == 1


def test_episodes_are_kept_as_they_end_without_those_that_were_lost(clock):
    kept: list[str] = []
    play = PlayProgress(
        Bar(log(), "", 4), 8, total=4, done=1, keep=lambda rows: kept.extend(map(name, rows))
    )
    play.on_end([row("a", 2), row("b", 1, Outcome.INFRA_FAILED)])
    assert (kept, play.done, play.correct) == (["a"], 2, 0)
    play.on_end([row("c", 2, Outcome.CORRECT, repeat=1)])
    assert (kept, play.done, play.correct) == (["a", "c"], 3, 1)
    assert play.has_seen(row("b", 1))
    assert play.has_seen(row("c", 1, repeat=1))
    assert not play.has_seen(row("c", 1))


def name(one: RolloutRow) -> str:
    return one.question_id


def test_a_terminal_shows_one_bar(clock):
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with bar(console, "eval (model)", 4) as shown:
        clock.now += 5.0
        shown.to(1, "9 turns")
        assert not shown.due
        clock.now += 0.3
        assert shown.due
    shown_text = "".join(lines(console))
    assert "1/4" in shown_text
    assert "15.0 s left" in shown_text
    assert "  9 turns" in shown_text


def test_counts_begin_again_with_each_step(clock):
    changes: list[bool] = []
    counts = PlayCounts(changes.append, processes=2)
    view: Any = None
    for _ in range(3):
        counts.on_start(view)
    counts.on_tokens(10, 0, 0)
    counts.on_end([row("a", 3)])
    assert (counts.started, counts.ended, counts.ended_turns, changes) == (3, 1, 3, [False, True])
    assert str(counts).endswith(" in process 0")
    counts.restart()
    assert (counts.started, counts.ended, str(counts)) == (0, 0, "0 turns in process 0")
