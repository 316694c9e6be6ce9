"""What `play` shows: every step as it happens, for people, or one JSON object a question, for
scripts.

What comes from the database, the model or the command line is shown letter by letter: no markup is
read in it, and control characters are written as escapes, so that no cell can move the cursor or
recolour the terminal.
"""

import json
import unicodedata
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from shared.actions import ActionType, render_action
from shared.models import Outcome, SQLObservation
from trainer.play.agent import Agent
from trainer.play.database import Database, size_text
from trainer.play.session import Played, Step
from trainer.run.console import counted

MAX_WRITTEN_CHARS = 600  # of a text that an action was read out of
MAX_TABLES_SHOWN = 12
INDENT = "   "
_THEME = "ansi_dark"  # the terminal's own colours


class Display(Protocol):
    """Told of a session as it goes."""

    def begin(self, database: Database, how: str, agent: Agent) -> None: ...

    def question(self, text: str, first: SQLObservation) -> None: ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Around what the user waits for: `what` says which."""

    def step(self, step: Step) -> None: ...

    def end(self, played: Played) -> None: ...

    def note(self, text: str) -> None:
        """Something that the user should know of."""


class Screen:
    """For people: on a terminal in colour, elsewhere as plain text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = False

    def begin(self, database: Database, how: str, agent: Agent) -> None:
        if self._begun:
            return
        self._begun = True
        self._line(
            "database",
            f"{database.given} ({size_text(database.size_bytes)}), {how}; nothing is written to it",
        )
        self._line("agent", f"{agent.name}, {agent.why}")
        self._line(
            "plays", f"{agent.sampling}, {counted(agent.config.step_budget, 'step')} at most"
        )

    def question(self, text: str, first: SQLObservation) -> None:
        tables = first.schema_info.removeprefix("Tables:").strip().split(", ")
        more = f", ... ({len(tables)} in all)" if len(tables) > MAX_TABLES_SHOWN else ""
        self._console.print()
        self._line("question", text)
        self._line("tables", ", ".join(tables[:MAX_TABLES_SHOWN]) + more)
        self._console.print()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what, spinner="dots"):
            yield

    def step(self, step: Step) -> None:
        spent = f"{step.agent_s:.2f} s + {step.env_s:.2f} s"
        spent = spent if step.tokens is None else f"{counted(step.tokens, 'token')}, {spent}"
        head = Text.assemble(
            (f"{step.number:>2} ", "bold"), (str(step.action.action_type), "bold cyan")
        )
        body = _argument(step)
        one_line = "\n" not in body.plain
        if one_line and step.action.action_type is not ActionType.ANSWER:
            head.append(" ").append_text(body)
        self._print(head.append(f"   ({spent})", "dim"))
        if step.fallback:
            self._indented(
                Text("no action, so it was taken as a QUERY; the agent wrote:", "yellow")
            )
            self._indented(Text(_cut(printable(step.text)), "yellow"))
        elif step.text.strip() != render_action(step.action):
            self._indented(Text("read out of: " + _cut(printable(step.text.strip())), "dim"))
        if not one_line and step.action.action_type is not ActionType.ANSWER:
            self._indented(body)
        seen = step.observation
        if seen.error is not None:
            self._indented(Text("error: " + printable(seen.error), "red"))
        elif seen.result:
            self._indented(Text(printable(seen.result)))

    def end(self, played: Played) -> None:
        self._console.print()
        if played.answer is not None:
            answer = Text(printable(played.answer), "bold")
            panel = Panel(
                answer,
                title="answer, unchecked",
                title_align="left",
                expand=False,
                border_style="green",
            )
            self._console.print(panel)
        else:
            self._print(Text(no_answer(played), "bold yellow"))
        counts = [counted(len(played.steps), "step")]
        if played.tokens is not None:
            counts.append(counted(played.tokens, "token"))
        counts.append(f"{played.wall_s:.2f} s (agent {played.agent_s:.2f} s)")
        if played.fallbacks:
            counts.append(f"parse fall-backs: {played.fallbacks}")
        if played.context_truncations:
            counts.append(
                f"old turns dropped from the agent's context {counted(played.context_truncations, 'time')}"
            )
        self._print(Text(", ".join(counts), "dim"))

    def note(self, text: str) -> None:
        self._print(Text("note: " + printable(text), "yellow"))

    def _line(self, name: str, text: str) -> None:
        self._print(Text.assemble((f"{name:9} ", "bold"), printable(text)))

    def _indented(self, text: Text) -> None:
        for line in text.split("\n", allow_blank=True):
            self._print(Text(INDENT).append_text(line))

    def _print(self, text: Text) -> None:
        # soft_wrap: a line of output is a line of the text, whatever the width; a terminal wraps it
        # by itself
        self._console.print(text, soft_wrap=True)


class JsonLines:
    """For scripts: one JSON object a question on stdout and nothing else; notes go to stderr."""

    def __init__(self, console: Console, errors: Console) -> None:
        self._console, self._errors = console, errors
        self._about: dict[str, Any] = {}

    def begin(self, database: Database, how: str, agent: Agent) -> None:
        self._about = {
            "database": str(database.given),
            "database_read": how,
            "agent": agent.name,
            "agent_is": agent.why,
            "greedy": agent.sampling.greedy,
            "temperature": agent.sampling.temperature,
            "seed": agent.sampling.seed,
            "step_budget": agent.config.step_budget,
        }

    def question(self, text: str, first: SQLObservation) -> None:
        pass

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def step(self, step: Step) -> None:
        pass

    def end(self, played: Played) -> None:
        line = json.dumps({**self._about, **played.as_json()}, ensure_ascii=False, allow_nan=False)
        self._console.file.write(line.encode(errors="replace").decode() + "\n")
        self._console.file.flush()

    def note(self, text: str) -> None:
        self._errors.print(
            f"note: {printable(text)}", markup=False, highlight=False, soft_wrap=True
        )


def no_answer(played: Played) -> str:
    """Why there is none, in a line."""
    if played.context_overflow:
        return "no answer: the agent's context window is full"
    if played.outcome == Outcome.BUDGET:
        return f"no answer within {counted(len(played.steps), 'step')}; --steps allows more"
    if played.outcome == Outcome.SQL_KILLED:
        return "no answer: a query was too much for the SQL workers, which ends an episode"
    return "no answer: the agent stopped, its context window full or its words used up"


def printable(text: str) -> str:
    """`text` with all that isn't a letter, a sign or a space as an escape (`\\x1b`), line ends and
    tabs aside."""
    return "".join(
        char
        if char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs"
        else repr(char)[1:-1]
        for char in text
    )


def _argument(step: Step) -> Text:
    text = printable(step.action.argument)
    if step.action.action_type is not ActionType.QUERY:
        return Text(text)
    shown = Syntax("", "sql", theme=_THEME, background_color="default").highlight(text)
    shown.rstrip()
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WRITTEN_CHARS else text[: MAX_WRITTEN_CHARS - 1] + "…"
