"""What `play` shows: every step as it happens, for people, or JSON lines, for scripts.

Texts of the database, the model and the command line are shown literally: no markup is interpreted
and control characters are escaped, so that no cell can control the terminal.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, Protocol

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from shared.actions import ActionType, render_action
from shared.console import print_line
from shared.models import Outcome
from trainer.play.agent import Agent
from trainer.play.database import Database, size_text
from trainer.play.session import Listener, PlayedQuestion, PlayStep
from trainer.run.console import counted

MAX_TEXT_CHARS = 600  # of a text that an action was parsed from
MAX_TABLES = 12  # named in the heading
INDENT = "   "


class Display(Listener, Protocol):
    """Shows a session while it is played."""

    def start(self, database: Database, how: str, agent: Agent) -> None: ...

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Show `what` while the block runs."""

    def end(self, played: PlayedQuestion) -> None: ...

    def note(self, text: str) -> None: ...


class Screen:
    """For people: in colour on a terminal, else plain text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = False

    def start(self, database: Database, how: str, agent: Agent) -> None:
        if self._started:
            return
        self._started = True
        size = size_text(database.size_bytes)
        self._line("database", f"{database.given} ({size}), {how}; nothing is written to it")
        self._line("agent", f"{agent.name}, {agent.why}")
        steps = counted(agent.config.step_budget, "step")
        self._line("plays", f"{agent.sampling}, at most {steps}")

    def question(self, text: str, tables: Sequence[str]) -> None:
        more = f", ... ({len(tables)} in total)" if len(tables) > MAX_TABLES else ""
        self._console.print()
        self._line("question", text)
        self._line("tables", ", ".join(tables[:MAX_TABLES]) + more)
        self._console.print()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(what, spinner="dots"):
            yield

    def step(self, step: PlayStep) -> None:
        times = f"{step.agent_s:.2f} s + {step.env_s:.2f} s"
        if step.tokens is not None:
            times = f"{counted(step.tokens, 'token')}, {times}"
        kind = step.action.action_type
        head = Text.assemble((f"{step.number:>2} ", "bold"), (str(kind), "bold cyan"))
        argument = _argument(step) if kind is not ActionType.ANSWER else Text()
        inline = "\n" not in argument.plain
        if inline and argument:
            head.append(" ").append_text(argument)
        self._print(head.append(f"   ({times})", "dim"))
        if step.fallback:
            self._indented(
                Text("no action in the text, so it ran as a QUERY; the agent wrote:", "yellow")
            )
            self._indented(Text(_cut(printable(step.text)), "yellow"))
        elif step.text.strip() != render_action(step.action):
            self._indented(Text("parsed from: " + _cut(printable(step.text.strip())), "dim"))
        if not inline:
            self._indented(argument)
        if step.observation.error is not None:
            self._indented(Text("error: " + printable(step.observation.error), "red"))
        elif step.observation.result:
            self._indented(Text(printable(step.observation.result)))

    def end(self, played: PlayedQuestion) -> None:
        self._console.print()
        if played.answer is not None:
            answer = Text(printable(played.answer), "bold")
            look: dict[str, Any] = {"title_align": "left", "expand": False, "border_style": "green"}
            self._console.print(Panel(answer, title="answer, unchecked", **look))
        else:
            self._print(Text(no_answer(played), "bold yellow"))
        counts = [counted(len(played.steps), "step")]
        if played.tokens is not None:
            counts.append(counted(played.tokens, "token"))
        counts.append(f"{played.wall_s:.2f} s (agent {played.agent_s:.2f} s)")
        if played.fallbacks:
            counts.append(f"parse fallbacks: {played.fallbacks}")
        if played.context_truncations:
            counts.append(f"context truncated {counted(played.context_truncations, 'time')}")
        self._print(Text(", ".join(counts), "dim"))

    def note(self, text: str) -> None:
        self._print(Text("note: " + printable(text), "yellow"))

    def _line(self, name: str, text: str) -> None:
        self._print(Text.assemble((f"{name:9} ", "bold"), printable(text)))

    def _indented(self, text: Text) -> None:
        for line in text.split("\n", allow_blank=True):
            self._print(Text(INDENT).append_text(line))

    def _print(self, text: Text) -> None:
        # soft_wrap: output lines are the text's lines at any width; the terminal wraps them
        self._console.print(text, soft_wrap=True)


class JsonLines:
    """For scripts: one JSON object per question in `file`; notes go to stderr."""

    def __init__(self, file: IO[str], errors: Console) -> None:
        self._file, self._errors = file, errors
        self._session: dict[str, Any] = {}

    def start(self, database: Database, how: str, agent: Agent) -> None:
        self._session = {
            "database": str(database.given),
            "database_read": how,
            "agent": agent.name,
            "agent_is": agent.why,
            "greedy": agent.sampling.greedy,
            "temperature": agent.sampling.temperature,
            "seed": agent.sampling.seed,
            "step_budget": agent.config.step_budget,
        }

    def question(self, text: str, tables: Sequence[str]) -> None:
        pass

    def busy(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def step(self, step: PlayStep) -> None:
        pass

    def end(self, played: PlayedQuestion) -> None:
        fields = {**self._session, **played.as_json()}
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
        self._file.write(line.encode(errors="replace").decode() + "\n")
        self._file.flush()

    def note(self, text: str) -> None:
        print_line(self._errors, f"note: {printable(text)}")


def no_answer(played: PlayedQuestion) -> str:
    """Return why there is no answer, in one line."""
    if played.context_overflow:
        return "no answer: the agent's context window is full"
    if played.outcome == Outcome.BUDGET:
        return f"no answer within {counted(len(played.steps), 'step')}; --step-budget allows more"
    if played.outcome == Outcome.SQL_KILLED:
        return "no answer: a query exceeded the limits of the SQL workers, which ends an episode"
    return "no answer: the agent stopped, its context window or its token limit exhausted"


def printable(text: str) -> str:
    """Return `text` with unprintable characters escaped (`\\x1b`), except newlines and tabs."""
    return "".join(
        char
        if char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs"
        else repr(char)[1:-1]
        for char in text
    )


def _argument(step: PlayStep) -> Text:
    text = printable(step.action.argument)
    if step.action.action_type is not ActionType.QUERY:
        return Text(text)
    # the terminal's own colours
    sql = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
    sql.rstrip()
    return sql


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
