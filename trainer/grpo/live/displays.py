"""Where a live display goes: a notebook's cell, a terminal, or files."""

import html
import logging
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from trainer.config import LiveView
from trainer.grpo.live.snapshot import (
    LiveSnapshot,
    Trace,
    reward_chart,
    success_chart,
    trace_heading,
    trace_markdown,
    trace_verdict,
)
from trainer.grpo.live.terminal import Dashboard
from trainer.run.charts import png
from trainer.run.console import Bar
from trainer.run.folder import write_bytes, write_text

REWARD, SUCCESS, TRACE = "reward", "success", "trace"  # what of a snapshot may have changed
log = logging.getLogger(__name__)


class LiveDisplay(Protocol):
    def draw(self, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
        """Show the snapshot; `changed` (`REWARD`, `SUCCESS`, `TRACE`) differs from the last one.

        May raise.
        """


class FilesDisplay:
    """reward.png, success.png and traces.md (every trace so far) in `folder`, replaced whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def draw(self, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
        for name, chart in ((REWARD, reward_chart), (SUCCESS, success_chart)):
            if name in changed:
                picture = png([chart(snapshot)], snapshot.heading)
                write_bytes(self._folder / f"{name}.png", picture)
        if TRACE in changed and snapshot.traces:
            traces = "\n".join(map(trace_markdown, snapshot.traces))
            page = f"# Episodes of the model in training\n\n{traces}"
            write_text(self._folder / "traces.md", page)


class TerminalDisplay:
    """Charts and the latest episode above the training's progress bar, redrawn in place."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar

    def draw(self, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
        # a new one, since a thread of rich's may be drawing the last
        self._bar.above(Dashboard(snapshot))


class NotebookDisplay:
    """One picture and the latest episode below the running cell, replaced in place."""

    def __init__(self) -> None:
        self._picture: Any = None
        self._trace: Any = None

    def draw(self, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
        from IPython.display import HTML, Image

        if REWARD in changed or SUCCESS in changed:
            picture = png([reward_chart(snapshot), success_chart(snapshot)], snapshot.heading)
            self._picture = _replaced(self._picture, Image(picture, format="png"))
        if TRACE in changed and snapshot.traces:
            self._trace = _replaced(self._trace, HTML(trace_html(snapshot.traces[-1])))


def _replaced(handle: Any, content: Any) -> Any:
    """Show `content` in place of what the IPython display handle shows; return its handle."""
    from IPython.display import display

    if handle is None:
        return display(content, display_id=True)
    handle.update(content)
    return handle


def trace_html(trace: Trace) -> str:
    """Return the whole episode as HTML without a style sheet; all its texts are escaped."""
    turns = []
    for turn in trace.episode.turns:
        observation = f"<pre>{html.escape(turn.observation)}</pre>" if turn.observation else ""
        turns.append(f"<li><pre><b>{html.escape(turn.action)}</b></pre>{observation}</li>")
    return (
        f"<p><b>{html.escape(trace_heading(trace))}</b><br><i>{html.escape(trace.question)}</i></p>"
        f"<ol>{''.join(turns)}</ol><p>{html.escape(trace_verdict(trace))}</p>"
    )


def in_notebook() -> bool:
    """Return whether an IPython kernel runs this process, as in Jupyter, VS Code and Colab."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def choose_display(kind: LiveView, bar: Bar | None, folder: Path) -> LiveDisplay | None:
    """Return the display of that kind; None for `off`. One that is not available is replaced by
    files, with a warning.

    `bar` is the training's progress bar, without which a terminal can't be used.
    """
    if kind == "off":
        return None
    if kind in ("auto", "notebook") and in_notebook():
        return NotebookDisplay()
    if kind in ("auto", "terminal") and bar is not None and bar.moves:
        return TerminalDisplay(bar)
    if kind in ("notebook", "terminal"):
        log.warning("live_view is %s, but there is no %s: plots go to %s", kind, kind, folder)
    return FilesDisplay(folder)
