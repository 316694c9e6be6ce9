"""Where a live display goes: a notebook's cell, a terminal, or files."""

import html
import logging
import shutil
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

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
from trainer.grpo.live.terminal import dashboard
from trainer.run.charts import png
from trainer.run.console import Bar
from trainer.run.folder import write_bytes, write_text

REWARD, SUCCESS, TRACE = "reward", "success", "trace"  # what of a snapshot may have changed
# show a snapshot; the second argument is what differs from the last one; may raise
LiveDisplay = Callable[[LiveSnapshot, Collection[str]], None]
log = logging.getLogger(__name__)


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
        # above the bar, redrawn in place
        return lambda snapshot, changed: bar.above(dashboard(snapshot, *shutil.get_terminal_size()))
    if kind in ("notebook", "terminal"):
        log.warning("live_view is %s, but there is no %s: plots go to %s", kind, kind, folder)
    return lambda snapshot, changed: write_files(folder, snapshot, changed)


def in_notebook() -> bool:
    """Return whether an IPython kernel runs this process, as in Jupyter, VS Code and Colab."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def write_files(folder: Path, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
    """Write reward.png, success.png and traces.md, with every trace so far, in `folder`."""
    for name, chart in ((REWARD, reward_chart), (SUCCESS, success_chart)):
        if name in changed:
            write_bytes(folder / f"{name}.png", png([chart(snapshot)], snapshot.heading))
    if TRACE in changed and snapshot.traces:
        traces = "\n".join(map(trace_markdown, snapshot.traces))
        write_text(folder / "traces.md", f"# Episodes of the model in training\n\n{traces}")


class NotebookDisplay:
    """One picture and the latest episode below the running cell, replaced in place."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}

    def __call__(self, snapshot: LiveSnapshot, changed: Collection[str]) -> None:
        from IPython.display import HTML, Image

        if REWARD in changed or SUCCESS in changed:
            picture = png([reward_chart(snapshot), success_chart(snapshot)], snapshot.heading)
            self._show("picture", Image(picture, format="png"))
        if TRACE in changed and snapshot.traces:
            self._show("trace", HTML(trace_html(snapshot.traces[-1])))

    def _show(self, name: str, content: Any) -> None:
        from IPython.display import display

        if name in self._handles:
            self._handles[name].update(content)
        else:
            self._handles[name] = display(content, display_id=True)


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
