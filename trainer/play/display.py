"""What `play` shows of a question: every step of a single attempt as it happens, or of several
attempts how far they are, and whether they agree.

Texts of the database, the model and the command line are shown literally: no markup is interpreted
and control characters are escaped, so that no cell can control the terminal.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from shared.actions import ActionType
from shared.console import counted, errors, printable
from shared.models import Outcome, SQLObservation
from trainer.play.database import Database
from trainer.play.played import PlayedAttempt, PlayedQuestion, PlayStep, is_nothing
from trainer.run.progress import Bar

MAX_TEXT_CHARS = 600  # of a text that an action was parsed from
MAX_READINGS = 3  # of a question, where attempts disagree
INDENT = "   "
SILENT = Console(quiet=True)


class Screen:
    """Shows questions while they are played: in colour on a terminal, else as plain text. `brief`:
    only how far they are, and why one has no answer."""

    def __init__(self, console: Console, *, brief: bool = False) -> None:
        self._console, self._brief = console, brief
        self._stack, self._several, self._bar = ExitStack(), False, Bar(SILENT, "", None)

    def start(self, database: Database, agent: str) -> None:
        about = f"{database.given} ({decimal(database.stat.st_size)}), {database.how}"
        self._line("database", f"{about}; nothing is written to it")
        if database.notes_path:
            self._line("notes", f"{database.notes_path}: {database.notes}")
        if names := database.quoted_names:
            some = f"{counted(len(names), 'name')}, such as {printable(names[0])},"
            note = f"note: SQL needs {some} in quotes, which small models often forget"
            remedy = f"python -m data import sqlite {database.quoted} --mend"
            self._print(Text(f"{note}; {remedy} makes a copy with plain names", "yellow"))
        self._line("agent", agent)

    @contextmanager
    def playing(self, title: str, attempts: int) -> Iterator[Bar]:
        shown = (self._brief or attempts > 1) and not self._console.quiet
        self._bar = Bar(errors if shown else SILENT, title, attempts)
        with ExitStack() as self._stack:
            yield self._bar
        self._bar.end()

    def question(self, played: PlayedQuestion) -> None:
        self._several = self._brief or len(played.attempts) > 1
        if not self._brief:
            self._console.print()
        self._line("question", played.question)
        if not self._brief:
            self._line("tables", ", ".join(played.tables))
        if played.unknown_names:
            names = ", ".join(map(repr, played.unknown_names))
            self._print(Text(f"note: no table, column or value has {printable(names)}", "yellow"))
        if not self._brief:
            self._console.print()
        if self._bar.progress:
            self._bar.progress.live.transient = True
            self._stack.enter_context(self._bar.progress)

    def step(self, step: PlayStep) -> None:
        if not self._several:
            self._step(step)

    def _step(self, step: PlayStep) -> None:
        if step.action is ActionType.ANSWER:
            return
        cost = [] if step.tokens is None else [counted(step.tokens, "token")]
        cost.append(f"{step.wall_s:.2f} s")
        head = Text.assemble((f"{step.step:>2} ", "bold"), (str(step.action), "bold cyan"))
        argument = _argument(step)
        inline = "\n" not in argument.plain
        if inline and argument:
            head.append(" ").append_text(argument)
        self._print(head.append(f"   ({', '.join(cost)})", "dim"))
        if step.parse_fallback:
            self._indented(Text("the agent's text, which has no action, ran as a QUERY", "yellow"))
        elif step.text.strip() != f"{step.action}: {step.argument}":
            self._indented(Text("parsed from: " + _cut(printable(step.text.strip())), "dim"))
        if not inline:
            self._indented(argument)
        if step.error is not None:
            self._indented(Text("error: " + printable(step.error), "red"))
        elif step.result:
            self._indented(Text(printable(step.result)))

    def end(self, played: PlayedQuestion) -> None:
        agreeing, attempt = played.leader
        several = len(played.attempts) > 1
        if self._brief:
            if played.answer is None:
                self._print(Text(no_answer(played), "bold yellow"))
            return
        if several:
            for step in attempt.steps:
                self._step(step)
        self._console.print()
        answer = played.answer
        if answer is None or attempt.query is None:
            self._print(Text(no_answer(played), "bold yellow"))
        else:
            text = Text("nothing found" if is_nothing(answer) else printable(answer), "bold")
            if several:
                text.append(f"\n{agreement(agreeing, played)}", "not bold")
            title = "answer, unchecked"
            self._console.print(
                Panel(text, title=title, title_align="left", expand=False, border_style="blue")
            )
            self._print(Text("from ").append_text(_argument(attempt.query)))
        readings = played.readings
        if len(readings) > 1:
            self._ask_back(played, readings[answer is not None : MAX_READINGS])
        elif answer is None and attempt.said is not None and attempt.query is not None:
            self._print(Text("the last result, from ").append_text(_argument(attempt.query)))
            self._indented(Text(printable(attempt.query.result)))
        counts = [counted(len(played.steps), "step")]
        if several:
            counts.insert(0, counted(len(played.attempts), "attempt"))
        if played.tokens is not None:
            counts.append(counted(played.tokens, "token"))
        counts.append(f"{played.wall_s:.2f} s")
        self._print(Text(", ".join(counts), "dim"))

    def result(self, observation: SQLObservation) -> None:
        if observation.error is not None:
            self._indented(Text("error: " + printable(observation.error), "red"))
        elif not self._brief:
            self._indented(Text(printable(observation.result)))

    def _ask_back(
        self, played: PlayedQuestion, readings: Sequence[tuple[int, PlayedAttempt]]
    ) -> None:
        self._print(Text("do you mean ...?", "bold"))
        for number, (agreeing, attempt) in enumerate(readings, start=1):
            head = Text(f"{number}. {agreement(agreeing, played)}: ")
            if attempt.query is None:
                self._print(head.append("no query worked", "yellow"))
                continue
            self._print(head.append_text(_argument(attempt.query)))
            self._indented(Text(printable(attempt.query.result)))
            if attempt.answer is None:
                self._indented(Text(unconfirmed(attempt), "yellow"))

    def _line(self, name: str, text: str) -> None:
        self._print(Text.assemble((f"{name:9} ", "bold"), printable(text)))

    def _indented(self, text: Text) -> None:
        for line in text.split("\n", allow_blank=True):
            self._print(Text(INDENT).append_text(line))

    def _print(self, text: Text) -> None:
        # soft_wrap: output lines are the text's lines at any width; the terminal wraps them
        self._console.print(text, soft_wrap=True)


def agreement(agreeing: int, played: PlayedQuestion) -> str:
    count = len(played.attempts)
    return f"{agreeing} of {counted(count, 'attempt')} {'agrees' if agreeing == 1 else 'agree'}"


def no_answer(played: PlayedQuestion) -> str:
    agreeing, attempt = played.leader
    if agreeing and agreeing < played.agree:
        return f"no answer: only {agreement(agreeing, played)}, and {played.agree} must (--agree)"
    reason = unconfirmed(attempt) if attempt.said is not None else unanswered(attempt)
    return reason if agreeing or len(played.attempts) == 1 else f"{reason}; no attempt has one"


def unconfirmed(attempt: PlayedAttempt) -> str:
    if attempt.source is not None:
        doubts = "; ".join(attempt.doubts[attempt.source.argument])
        return f"the answer is not confirmed: {printable(doubts)}"
    if is_nothing(attempt.said or ""):
        return "no answer: the agent gave an empty one"
    return "the answer is not confirmed: no query of the agent's returned it"


def unanswered(attempt: PlayedAttempt) -> str:
    if attempt.lost is not None:
        return f"no answer: {printable(attempt.lost)}"
    if attempt.stuck:
        return "no answer: the agent only repeated an action that had failed"
    if attempt.context_overflow:
        return "no answer: the agent's context window is full; use a model with a larger one"
    if attempt.outcome == Outcome.BUDGET:
        within = f"no answer within {counted(len(attempt.steps), 'step')}"
        return within + ("; --step-budget allows more" if attempt.queries else ": no query worked")
    if attempt.outcome == Outcome.SQL_KILLED:
        return "no answer: a query exceeded the limits of the SQL workers, which ends an episode"
    return "no answer: the agent stopped, its context window or its token limit exhausted"


def _argument(step: PlayStep) -> Text:
    text = printable(step.argument)
    if step.action is not ActionType.QUERY:
        return Text(text)
    # the terminal's own colours
    sql = Syntax("", "sql", theme="ansi_dark", background_color="default").highlight(text)
    sql.rstrip()
    return sql


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"
