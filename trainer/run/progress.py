"""Progress of whatever plays or trains: a bar on a terminal, a line a minute in a log."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from shared.console import percent, print_line
from trainer.rollout.episode import Episode, EpisodeObserver
from trainer.rollout.row import RolloutRow
from trainer.run.console import seconds_text

LINE_EVERY_S = 60.0  # between two lines of one bar in a log
REFRESH_S = 0.25  # between two updates of a terminal
EVIDENCE_S = 60.0  # of play, before it says what more of it will cost


class _BarAndNote(Progress):
    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(f"  {task.fields['note']}", "dim", no_wrap=True, overflow="ellipsis")


class Bar:
    """A progress bar. A log gets a line every `LINE_EVERY_S` seconds and at the end instead."""

    def __init__(self, console: Console, title: str, total: int | None, done: int = 0) -> None:
        self._console, self._title, self._total = console, title, total
        self._start = self._shown = time.monotonic()
        self._first, self._unprinted = done, ""
        self.progress: Progress | None = None
        # rich treats a notebook as a terminal, but needs ipywidgets to redraw anything there
        if console.is_terminal and not (console.is_jupyter or console.quiet):
            self.progress = _BarAndNote(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
                console=console,
                refresh_per_second=1 / REFRESH_S,
            )
            fields: dict[str, Any] = {"total": total, "completed": done, "note": "", "left": ""}
            self._task = self.progress.add_task(title, **fields)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    @property
    def due(self) -> bool:
        wait_s = LINE_EVERY_S if self.progress is None else REFRESH_S
        return time.monotonic() - self._shown >= wait_s

    def to(self, done: int, note: str = "", total: int | None = None, share: float = 0.0) -> None:
        """Show that `done` of the total are done. `share` is that of the whole work, with what is
        not whole yet; by default that of `done`."""
        self._total = total or self._total
        whole, first = (part / self._total if self._total else 0.0 for part in (done, self._first))
        share = max(share, whole)
        left = ""
        if first < share < 1:
            left_s = self.elapsed_s * (1 - share) / (share - first)
            left = f"{seconds_text(left_s)} left"
        if self.progress is not None:
            told: dict[str, Any] = {"note": note, "left": left, "total": self._total}
            self.progress.update(self._task, completed=done, **told)
        else:
            texts = (f"{self._title}: {done}/{self._total or '?'}", left, note)
            self._unprinted = ", ".join(filter(None, texts))
            if not (done == self._total or self.due):
                return
            self.end()
        self._shown = time.monotonic()

    def end(self) -> None:
        if self._unprinted:
            print_line(self._console, self._unprinted)
            self._unprinted = ""


@contextmanager
def bar(console: Console, title: str, total: int | None = None, done: int = 0) -> Iterator[Bar]:
    made = Bar(console, title, total, done)
    with made.progress or nullcontext():
        yield made
    made.end()


@dataclass(frozen=True)
class Pace:
    """Seconds per episode and per token of a prompt or an observation, and tokens of an episode."""

    episode_s: float
    read_token_s: float
    episode_tokens: float


class PlayCounts(EpisodeObserver):
    """Counts a batch's episodes, turns and tokens while this process plays them; `changed` is
    called after each change, with whether episodes ended."""

    def __init__(self, changed: Callable[[bool], None], processes: int = 1) -> None:
        self._changed, self.processes = changed, processes
        self.restart()

    def has_seen(self, row: RolloutRow) -> bool:
        return (row.question_id, row.repeat) in self._seen

    def restart(self) -> None:
        self._seen = set[tuple[str, int]]()
        self.started = self.ended = self.turns = self.ended_turns = self.read = self.written = 0
        self.reading_s, self._since = 0.0, time.monotonic()
        self._latest = self._since

    def on_start(self, episode: Episode) -> None:
        self.started += 1
        self._latest = time.monotonic()

    def on_tokens(self, read: int, written: int, turns: int) -> None:
        now = time.monotonic()
        self.reading_s += now - self._latest if read else 0.0
        self._latest = now
        self.read += read
        self.written += written
        self.turns += turns
        self._changed(False)

    def on_end(self, rows: Sequence[RolloutRow]) -> None:
        self._seen.update((row.question_id, row.repeat) for row in rows)
        self.ended += len(rows)
        self.ended_turns += sum(len(row.texts) for row in rows)
        self._latest = time.monotonic()
        self._changed(True)

    def __str__(self) -> str:
        parts = [f"{self.turns:,} turns"]
        if self.read:
            rate = self.written / max(1e-9, time.monotonic() - self._since)
            parts += [f"{self.read:,} tokens read", f"{self.written:,} written ({rate:.0f}/s)"]
        return ", ".join(parts) + (" in process 0" if self.processes > 1 else "")


class PlayProgress(PlayCounts):
    """Shows on a bar how far `total` episodes are, of which `done` were played before. `keep` gets
    the rows of those that end, without lost ones; `on_pace` is called once, after `EVIDENCE_S` or
    at the end. `correct` is None for open questions."""

    def __init__(
        self,
        shown: Bar,
        step_budget: int,
        *,
        total: int,
        done: int = 0,
        correct: int | None = 0,
        keep: Callable[[Sequence[RolloutRow]], None] = lambda rows: None,
        on_pace: Callable[[Pace], None] | None = None,
        processes: int = 1,
    ) -> None:
        super().__init__(self._show, processes)
        self._bar, self._budget, self._total, self._keep = shown, step_budget, total, keep
        self._first, self.done, self.correct = done, done, correct
        self._on_pace = on_pace

    def on_end(self, rows: Sequence[RolloutRow]) -> None:
        finished = [row for row in rows if row.lost is None]
        self._keep(finished)
        self.done += len(finished)
        if self.correct is not None:
            self.correct += sum(row.correctness == 1.0 for row in finished)
        super().on_end(rows)

    def _show(self, ended: bool) -> None:
        if not (ended or self._bar.due):
            return
        # an episode under way counts by its turns
        under_way = max(0, self.processes * self.turns - self.ended_turns) / self._budget
        work = min(self._total, self.done + under_way)
        rate = ""
        if self.done and self.correct is not None:
            rate = f", success {percent(self.correct / self.done)}"
        self._bar.to(self.done, f"{self}{rate}", share=work / self._total)
        played, elapsed_s = work - self._first, self._bar.elapsed_s
        enough = elapsed_s >= EVIDENCE_S or self._first + self.ended >= self._total
        if self._on_pace is not None and played and enough:
            tokens = (self.read + self.written) / played
            read_token_s = self.reading_s / self.read if self.read else 0.0
            self._on_pace(Pace(elapsed_s / played, read_token_s, tokens))
            self._on_pace = None
