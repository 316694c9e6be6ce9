"""Where a live view goes: a notebook's cell, a terminal, or files. A `View` draws a scene;
`choose_view` picks one."""

import html
import logging
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Protocol

from trainer.config import LiveView
from trainer.grpo.live.figures import picture, reward_panel, success_panel
from trainer.grpo.live.scene import Scene, Trace, trace_heading, trace_markdown, trace_verdict
from trainer.grpo.live.text import Dashboard
from trainer.run.console import Bar
from trainer.run.folder import write_bytes, write_text

REWARD, SUCCESS, TRACE = "reward", "success", "trace"  # the parts of a scene that may have changed
log = logging.getLogger(__name__)


class View(Protocol):
    def draw(self, scene: Scene, changed: Collection[str]) -> None:
        """Show the scene, of which `changed` (`REWARD`, `SUCCESS`, `TRACE`) differs from the last
        one. May raise."""


class FilesView:
    """reward.png, success.png and traces.md (every trace so far) in `folder`; a reader sees whole
    files only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def draw(self, scene: Scene, changed: Collection[str]) -> None:
        if REWARD in changed:
            write_bytes(self._folder / "reward.png", picture(scene, [reward_panel]))
        if SUCCESS in changed:
            write_bytes(self._folder / "success.png", picture(scene, [success_panel]))
        if TRACE in changed and scene.traces:
            write_text(
                self._folder / "traces.md",
                "# Episodes of the model in training\n\n" + _all_traces(scene),
            )


def _all_traces(scene: Scene) -> str:
    return "\n".join(map(trace_markdown, scene.traces))


class TerminalView:
    """Charts and the latest episode above the training's progress bar, redrawn with it, in place."""

    def __init__(self, shown: Bar) -> None:
        self._shown, self._dashboard = shown, Dashboard()

    def draw(self, scene: Scene, changed: Collection[str]) -> None:
        self._dashboard.show(scene)
        self._shown.above(self._dashboard)


class NotebookView:
    """One picture and the latest episode below the running cell, replaced in place by IPython's
    display handles."""

    def __init__(self) -> None:
        self._picture: Any = None
        self._trace: Any = None

    def draw(self, scene: Scene, changed: Collection[str]) -> None:
        from IPython.display import HTML, Image

        if REWARD in changed or SUCCESS in changed:
            self._picture = _shown(self._picture, Image(picture(scene), format="png"))
        if TRACE in changed and scene.traces:
            self._trace = _shown(self._trace, HTML(trace_html(scene.traces[-1])))


def _shown(handle: Any, content: Any) -> Any:
    """The handle of `content` on the page, which replaces what the handle showed."""
    from IPython.display import display

    if handle is None:
        return display(content, display_id=True)
    handle.update(content)
    return handle


def trace_html(trace: Trace) -> str:
    """The whole episode as HTML that needs no style sheet. Whatever a model or a database wrote is
    escaped."""
    turns = []
    for turn in trace.episode.turns:
        shown = f"<pre>{html.escape(turn.observation)}</pre>" if turn.observation else ""
        turns.append(f"<li><pre><b>{html.escape(turn.action)}</b></pre>{shown}</li>")
    return (
        f"<p><b>{html.escape(trace_heading(trace))}</b><br><i>{html.escape(trace.question)}</i></p>"
        f"<ol>{''.join(turns)}</ol><p>{html.escape(trace_verdict(trace))}</p>"
    )


def in_notebook() -> bool:
    """Whether an IPython kernel runs this process, as in Jupyter, VS Code and Colab."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def choose_view(kind: LiveView, shown: Bar | None, folder: Path) -> View | None:
    """The view of that kind; None of `off`. A kind that can't be had here is replaced by files,
    with a warning.

    `shown` is the training's progress bar, without which nothing can be drawn into a terminal.
    """
    terminal = shown is not None and shown.moves
    if kind == "off":
        return None
    if kind == "notebook" or (kind == "auto" and in_notebook()):
        if in_notebook():
            return NotebookView()
        log.warning("live_view is notebook, but no notebook runs this: its plots go to %s", folder)
    elif kind == "terminal" or (kind == "auto" and terminal):
        if shown is not None and terminal:
            return TerminalView(shown)
        log.warning("live_view is terminal, but no terminal shows this: its plots go to %s", folder)
    return FilesView(folder)
