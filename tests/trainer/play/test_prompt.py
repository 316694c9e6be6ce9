"""What a user types at the prompt of `play`, with and without a line editor."""

import io
import os
import pty
import select
import sys
import time

import pytest
from rich.console import Console

from trainer.play.prompt import Prompt


@pytest.mark.parametrize("last", ["quit", "exit", None])
def test_lines_are_questions_until_the_user_leaves(last, monkeypatch):
    lines = iter(["", "  ", "And now?", "sql", "How many? ", last, "more"])

    def read(_: str) -> str:
        if (line := next(lines)) is None:
            raise EOFError
        return line

    terminal = Console(file=io.StringIO())
    monkeypatch.setattr(terminal, "input", read)
    # 'sql' without a query before it asks for one
    assert [*Prompt(terminal)] == [("And now?", False), ("How many?", True)]
    assert [*lines] == ["more"]


def test_without_an_editor_the_query_is_shown_and_may_be_kept(monkeypatch):
    file = io.StringIO()
    terminal, lines = Console(file=file, width=80), iter(["sql", "", "sql", "SELECT 2", "quit"])
    monkeypatch.setattr(terminal, "input", lambda _: next(lines))
    prompt = Prompt(terminal)
    prompt.query = "SELECT 1 -- one\nFROM t"
    typed = [*prompt]
    assert typed == [("SELECT 1 -- one\nFROM t", True), ("SELECT 2", True)]
    assert "SELECT 1 FROM t\n" in file.getvalue()


SCRIPT = """
from rich.console import Console
from trainer.play.prompt import Prompt
prompt = Prompt(Console(stderr=True))
prompt.query = "SELECT 1"
for text, is_sql in prompt:
    print("ran", repr(text), is_sql)
"""


def test_on_a_terminal_the_query_is_edited_in_place():
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT])
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        end = time.monotonic() + 30
        while text not in shown:
            assert time.monotonic() < end, shown
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 4096)

    wait_for(b"question> ")
    os.write(terminal, b"sql\n")
    wait_for(b"SELECT 1")
    os.write(terminal, b"\x7f2\n")  # a backspace, and another digit
    wait_for(b"ran 'SELECT 2' True")
    os.write(terminal, b"quit\n")
    os.waitpid(child, 0)
    os.close(terminal)
