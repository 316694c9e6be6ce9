"""The prompt, where a user types questions, and changes the query of the latest one."""

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from shared.console import print_line
from shared.sqltext import on_one_line

readline: Any
try:
    import readline
except ImportError:  # some builds of Python lack it
    readline = None

HELP = "One question per line; 'sql' to change the query and run it; Ctrl-D or 'quit' to leave."


class Prompt:
    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self.query = ""

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """Yield what the user types, and whether it is a query of their own."""
        print_line(self._terminal, HELP, "dim")
        while True:
            try:
                text = self._line("question> ")
                if text in ("quit", "exit"):
                    return
                if text == "sql":
                    self.query = self._line("sql> ", self.query) or self.query
                    if self.query:
                        yield self.query, True
                elif text:
                    yield text, False
            except EOFError:
                self._terminal.print()
                return

    def _line(self, prompt: str, text: str = "") -> str:
        """Read a line that begins as `text`, where the terminal can edit; else the text is shown,
        and an empty line keeps it."""
        text = on_one_line(text)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):  # no line editor
            if text:
                print_line(self._terminal, text)
            return self._terminal.input(prompt).strip()
        if readline is not None:
            readline.set_startup_hook(lambda: readline.insert_text(text))
        try:
            return input(prompt).strip()
        finally:
            if readline is not None:
                readline.set_startup_hook()
