"""`python -m trainer play`: episodes on a database of the user's own, through the command and in
this process."""

import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner, Result

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.errors import DatabaseLoadError
from shared.models import Outcome
from shared.server_process import running_server
from tests.trainer.chat_server import ChatServer, Messages, ModelBehind, refusal, served, tool_call
from tests.trainer.play.test_database import killed_writer, still
from trainer import __main__ as cli
from trainer.config import GRPOConfig
from trainer.errors import PlayError
from trainer.play.agent import Agent, Options, Sampling, local_agent
from trainer.play.database import examine, host
from trainer.play.display import Screen, no_answer, printable
from trainer.play.played import PlayedQuestion
from trainer.play.session import Display, ask, check_fits
from trainer.presets import OFFLINE_MODEL
from trainer.rollout.generators.base import EpisodeView
from trainer.rollout.prompts import get_system_prompt

ROOT = Path(__file__).parents[3]
GREEDY = Sampling()
SHOP = """
CREATE TABLE orders (order_id INTEGER PRIMARY KEY, buyer TEXT, total REAL);
INSERT INTO orders (buyer, total) VALUES ('Ann', 10.5), ('Bo', 99.0), ('Cy', 7.25);
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database of the user's, alone in a folder."""
    (tmp_path / "home").mkdir()
    return make(tmp_path / "home" / "shop.db", SHOP)


def make(path: Path, script: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def play(*arguments: object, input: str | None = None) -> Result:
    result = CliRunner().invoke(cli.app, ["play", *map(str, arguments)], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def one_line(text: str) -> str:
    return " ".join(text.split())


def scripted(*texts: Any) -> Callable[[Messages], Any]:
    """A model that writes these, one per turn; it counts the turns of the conversation."""
    return lambda messages: texts[sum(message["role"] == "assistant" for message in messages)]


class Texts:
    """A policy that writes these and then stops."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def act(self, views: Sequence[EpisodeView]) -> list[str | None]:
        return [
            self.texts[len(view.actions)] if len(view.actions) < len(self.texts) else None
            for view in views
        ]


def text_agent(*texts: str, steps: int = 8) -> Agent:
    return Agent(
        "a script", "for a test", GRPOConfig(step_budget=steps), Sampling(), policy=Texts(*texts)
    )


@contextmanager
def in_this_process(
    db: Path, question: str, folder: Path
) -> Iterator[Callable[..., PlayedQuestion]]:
    """`ask` for one question on a server that is an object: call it with an agent."""
    made = host(examine(db), [question], folder)
    with in_process(create_app(Settings(data_dir=made.data_dir, sql_workers=1))).sync() as client:
        yield lambda agent, display=None: ask(
            agent, client, made.question_ids[0], question, display or Display()
        )


def test_repeats_to_the_end_are_named_instead_of_the_step_budget(
    shop: Path, tmp_path: Path
) -> None:
    with in_this_process(shop, "How many?", tmp_path) as ask_with:
        texts = ("DESCRIBE: orders", *["QUERY: SELECT x FROM orders"] * 3)
        stuck = ask_with(text_agent(*texts, steps=4))
        assert no_answer(stuck) == (
            "no answer within 4 steps: the agent took the same action 3 times in a row"
        )
        trying = ask_with(text_agent(*texts[:3], "DESCRIBE: orders", steps=4))
        assert no_answer(trying) == "no answer within 4 steps; --step-budget allows more"


# -- through the command, with a server process


def test_a_model_behind_a_server_answers_and_every_step_is_shown(shop: Path) -> None:
    killed_writer(
        shop,
        "c.execute('PRAGMA journal_mode = wal');"
        " c.execute(\"INSERT INTO orders VALUES (9, 'Di', 1)\")",
    )
    before = still(shop.parent)[0]
    texts = (
        "DESCRIBE: orders",
        "I will count them.\nQUERY: SELECT count(*)\nFROM orders",
        "how about this",
        "ANSWER: 4",
    )
    with served(ChatServer(scripted(*texts), models=("tester",))) as chat:
        result = play(
            "--db", shop, "-q", "How many orders?", "--base-url", chat.url, "--model", "tester"
        )
    shown = result.output
    assert result.exit_code == 0
    assert "includes shop.db-wal" in shown
    assert f"tester, served by {chat.url}" in shown
    assert "greedy, at most 10 steps" in shown
    assert "question  How many orders?" in shown
    assert "tables    orders" in shown
    assert re.search(
        r" 1 DESCRIBE orders   \(2 tokens, .* s\)\n   orders: 4 rows\n   order_id INTEGER primary",
        shown,
    )
    assert "parsed from: I will count them." in shown
    assert re.search(r"\n   SELECT count\(\*\)\n   FROM orders\n   count\(\*\)\n   4\n", shown)
    assert re.search(
        r"3 QUERY how about this .*\n   no action in the text, .*\n   how about this\n"
        r'   error: near "how"',
        shown,
    )
    assert re.search(r"╭─ answer, unchecked ─+╮\n│ 4 +│", shown)
    assert re.search(r"4 steps, 16 tokens, .* 1 parse failure", shown)
    assert [one["temperature"] for one in chat.requests] == [0.0] * 4
    assert "How many orders?" in chat.requests[0]["messages"][1]["content"]
    assert "reward" not in json.dumps(chat.requests)
    after = still(shop.parent)[0]
    assert [after[name] for name in ("shop.db", "shop.db-wal")] == [
        before[name] for name in ("shop.db", "shop.db-wal")
    ]


def test_the_shipped_model_answers_two_questions_as_json(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    before = still(shop.parent)
    questions = ("How many orders are there?", "What is the highest total of an order?")
    result = play(
        "--db",
        shop,
        *("--json", "-"),
        "--model",
        OFFLINE_MODEL,
        *(word for one in questions for word in ("-q", one)),
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["question"] for line in lines] == list(questions)
    for line in lines:
        assert (line["database"], line["agent"], line["greedy"]) == (str(shop), OFFLINE_MODEL, True)
        assert line["database_read"] == "read in place"
        assert line["tables"] == ["orders"]
        assert line["outcome"] in ("answered", "budget")
        assert (line["answer"] is not None) == (line["outcome"] == "answered")
        assert line["tokens"] == sum(step["tokens"] for step in line["steps"]) > 0
        assert [step["step"] for step in line["steps"]] == list(range(1, len(line["steps"]) + 1))
        assert all(
            step["action"] in ("DESCRIBE", "SAMPLE", "QUERY", "ANSWER") for step in line["steps"]
        )
    assert result.exit_code == (0 if all(line["answer"] for line in lines) else 3)
    assert still(shop.parent) == before


def test_a_model_plays_the_same_in_this_process_and_behind_a_server(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    common = ("--db", shop, "-q", "How many orders are there?", "--preset", "offline")
    common = (*common, "--json", "-", "--step-budget", 4)
    model = AutoModelForCausalLM.from_pretrained(OFFLINE_MODEL, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(OFFLINE_MODEL)
    with served(ModelBehind(model.eval(), tokenizer)) as behind:
        there = ("--model", "fake", "--base-url", behind.url)
        ids = ("--api", "completions", "--tokenizer", OFFLINE_MODEL)
        ways = ("--model", OFFLINE_MODEL), there, (*there, *ids)
        played = [json.loads(play(*common, *way).stdout) for way in ways]
    local, *others = ([step["text"] for step in one["steps"]] for one in played)
    assert len(local) > 1
    assert others == [local, local]
    half = len(behind.prompts) // 2
    assert behind.prompts[:half] == behind.prompts[half:]


def test_a_model_that_calls_tools_answers(shop: Path) -> None:
    count = tool_call("query", {"sql": "SELECT count(*) FROM orders"}, "I count them.")
    turns = (tool_call("describe", {"table": "orders"}), count, tool_call("answer", {"answer": 3}))
    with served(ChatServer(scripted(*turns))) as chat:
        asked = ("--db", shop, "-q", "How many?", "--base-url", chat.url, "--model", "fake")
        result = play(*asked, "--api", "tools")
    assert result.exit_code == 0, result.output
    assert "QUERY SELECT count(*) FROM orders" in result.output
    assert "parsed from: I count them." in result.output
    assert re.search(r"╭─ answer, unchecked ─+╮\n│ 3 +│", result.output)
    system, *_, last = chat.requests[-1]["messages"]
    assert system["content"] == get_system_prompt("tools")
    assert last["role"] == "tool"


def test_json_lines_go_to_a_file(shop: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with served(ChatServer(scripted("ANSWER: 3"))) as chat:
        asked = ("--db", shop, "-q", "How many?", "--base-url", chat.url, "--model", "fake")
        result = play(*asked, "--json", path)
        assert (result.exit_code, result.stdout) == (0, "")
        assert json.loads(path.read_text())["answer"] == "3"
        refused = play(*asked, "--json", tmp_path / "no" / "a.jsonl")
    assert refused.exit_code == 1
    assert "choose another --json" in one_line(refused.output)


def test_a_separate_server_hosts_what_keep_made(shop: Path, tmp_path: Path) -> None:
    common = ("--db", shop, "--json", "-", "--model", "fake")
    with ExitStack() as stack:
        chat = stack.enter_context(served(ChatServer(scripted("ANSWER: 3"))))
        asked = (*common, "--base-url", chat.url, "-q", "How many?")
        assert play(*asked, "--keep", tmp_path / "kept").exit_code == 0
        server = stack.enter_context(running_server(tmp_path / "kept"))

        def somebody_writes(messages: Messages) -> str:
            make(shop, "INSERT INTO orders (buyer) VALUES ('Di')")
            return "ANSWER: 3"

        chat.answer = somebody_writes
        again = play(*asked, "--server", server.url)
        assert (again.exit_code, json.loads(again.stdout)["answer"]) == (0, "3")
        assert f"note: {shop} was written to meanwhile" in again.stderr
        other = play(*asked, "-q", "Which?", "--server", server.url)
        assert other.exit_code == 1
        assert "does not host this question on this database" in one_line(other.output)
        taken = play(*asked, "--keep", tmp_path / "kept")
        assert taken.exit_code == 1
        assert "name an empty folder" in one_line(taken.output)


@pytest.mark.slow
def test_a_terminal_is_asked_for_questions(shop: Path) -> None:
    """On a pseudo-terminal. An error ends its question alone, and 'exit' leaves."""
    controller, terminal = pty.openpty()
    with served(ChatServer(scripted("DESCRIBE: orders", "ANSWER: 3"))) as chat:
        command = [
            sys.executable,
            "-m",
            "trainer",
            "play",
            "--db",
            str(shop),
            "--base-url",
            chat.url,
        ]
        process = subprocess.Popen(
            [*command, "--model", "fake"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(terminal)
        seen = ""

        def until(text: str) -> None:
            nonlocal seen
            deadline = time.monotonic() + 120
            while text not in seen:
                assert time.monotonic() < deadline, seen
                if select.select([controller], [], [], 1)[0]:
                    seen += os.read(controller, 65_536).decode()

        try:
            for typed, shown in (
                ("How many orders?", "answer, unchecked"),
                ("And now?", "refuses the request for 'fake', 400: "),
                ("How many orders?", "answer, unchecked"),
            ):
                until("question> ")
                os.write(controller, typed.encode() + b"\n")
                until(shown)
                colours, _, seen = seen.rpartition(shown)  # the prompt may have come with it
                chat.faults.extend([refusal(400, "not today")] * ("And" not in typed))
            until("question> ")
            os.write(controller, b"exit\n")
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            os.close(controller)
    assert "\x1b[" in colours


# -- what is refused, each in one line

# nothing of these gets as far as to ask it
NO_SERVER = ("--base-url", "http://127.0.0.1:9/v1", "--model", "fake")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--db", "gone.db", "-q", "How many?"), "no file at gone.db"),
        (("--db", "README.md", "-q", "How many?"), "can't read README.md: file is not a database"),
        (("--db", "data", "-q", "How many?"), "data is not a regular file"),
        (("--db", "{shop}", "-q", " "), "the question is empty"),
        (("--db", "{shop}", "-q", "x" * 30_000), "the question has 30,000 characters"),
        (
            ("--db", "{shop}", "-q", "How many?", "--model", "./gone"),
            "no model directory at ./gone",
        ),
        (
            ("--db", "{bare}", "-q", "How many?", "--model", OFFLINE_MODEL),
            "bare.db: the database holds no table",
        ),
    ],
)
def test_bad_input_is_one_line(
    shop: Path, arguments: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    bare = make(shop.parent / "bare.db", "PRAGMA user_version = 7")
    result = play(*(one.format(shop=shop, bare=bare) for one in arguments))
    assert result.exit_code == 1
    assert expected in one_line(result.output)
    assert "Traceback" not in result.output


def test_it_has_help() -> None:
    result = play("--help")
    assert result.exit_code == 0
    assert "play" in CliRunner().invoke(cli.app, ["--help"]).output
    for option in ("--db", "--question", "--model", "--base-url", "--step-budget", "--json"):
        assert option in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "Missing option '--db'"),
        (("--db", "x"), "there is no terminal to prompt on"),
        (
            ("--db", "x", "-q", "y", "--base-url", "http://127.0.0.1:9/v1"),
            "name the model that the server serves",
        ),
        (
            ("--db", "x", "-q", "y", "--greedy", "--temperature", "1"),
            "can't be combined with --greedy",
        ),
        (
            ("--db", "x", "-q", "y", "--temperature", "-1"),
            "--temperature': Input should be greater",
        ),
        (("--db", "x", "-q", "y", "--step-budget", "0"), "--step-budget': Input should be greater"),
        (("--db", "x", "--keep", "z"), "needs --question"),
        (("--db", "x", "-q", "y", "--tokenizer", "z"), "is for --api completions"),
    ],
)
def test_contradictions_are_usage_errors(arguments: tuple[str, ...], expected: str) -> None:
    result = play(*arguments)
    assert result.exit_code == 2
    assert expected in one_line(re.sub("[│╭╮╰╯─]", " ", result.output))


def test_a_model_that_the_server_lacks_is_named(shop: Path) -> None:
    with served(ChatServer(scripted("ANSWER: 1"), models=("one", "two"))) as chat:
        result = play("--db", shop, "-q", "How many?", "--base-url", chat.url, "--model", "three")
    assert result.exit_code == 1
    assert "has no model 'three'; it has one, two" in one_line(result.output)


# -- in this process: what the server finds, and how episodes end


def test_damage_found_during_play_is_named(tmp_path: Path) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000)"
    table = "CREATE TABLE t (i INTEGER PRIMARY KEY, x TEXT)"
    script = f"{table}; {numbers} INSERT INTO t SELECT i, hex(i) FROM n"
    path = make(tmp_path / "worn.db", script)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xff" * (4096 * 5)
    path.write_bytes(content)
    console = Console(file=StringIO(), width=80)
    screen = Screen(console)
    with (
        in_this_process(path, "How many?", tmp_path / "data") as asked,
        pytest.raises(
            DatabaseLoadError,
            match=r"^the database can't be read: CorruptError.*integrity_check.*\.recover",
        ),
    ):
        asked(text_agent("QUERY: SELECT 1", "QUERY: SELECT sum(length(x)) FROM t"), screen)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert " 1 QUERY SELECT 1" in shown
    assert " 2 QUERY" not in shown


@pytest.mark.parametrize(
    ("texts", "outcome", "answer"),
    [
        (("ANSWER: [1, 2]",), Outcome.ANSWERED, "[1, 2]"),
        (("DESCRIBE: orders",) * 3, Outcome.BUDGET, None),
        (("DESCRIBE: orders",), Outcome.ABANDONED, None),
    ],
)
def test_how_an_episode_ends(
    shop: Path, tmp_path: Path, texts: tuple[str, ...], outcome: Outcome, answer: str | None
) -> None:
    with in_this_process(shop, "How many?", tmp_path / "data") as asked:
        played = asked(text_agent(*texts, steps=3))
    assert (played.outcome, played.answer, len(played.steps)) == (outcome, answer, len(texts))
    console = Console(file=StringIO(), width=80)
    Screen(console).end(played)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("answer, unchecked" in shown) == (answer is not None)
    assert ("no answer" in shown) == (answer is None)
    played_json = played.as_json()
    assert played_json["tokens"] is None  # nobody counted
    assert json.loads(json.dumps(played_json))["outcome"] == str(outcome)


def test_cells_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    nasty = "\x1b[2J[bold]red[/bold]\x07\u202e"
    path = make(tmp_path / "nasty.db", "CREATE TABLE t (x TEXT)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (?)", [nasty])
        connection.commit()
    console = Console(file=StringIO(), width=80, force_terminal=True)
    screen = Screen(console)
    with in_this_process(path, "What [red]is[/red] there?", tmp_path / "data") as asked:
        played = asked(text_agent("SAMPLE: t", f"ANSWER: {nasty}"), screen)
    screen.end(played)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("\\x1b[2J[bold]red[/bold]\\x07\\u202e") == 2
    assert "What [red]is[/red] there?" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    assert printable("é 漢\u3000字\n\t\x00") == "é 漢\u3000字\n\t\\x00"


# -- a local model


@pytest.fixture
def small_agent(tmp_path: Path, model: Any, tokenizer: Any) -> Callable[..., Agent]:
    """A random tiny model with a window of 1,024 tokens, loaded as the command does."""
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return lambda sampling=GREEDY: local_agent(
        str(tmp_path / "base"), Options(sampling, 5.0, steps=3)
    )


def test_a_question_or_a_schema_too_long_for_the_window_is_explained(
    tmp_path: Path, small_agent: Callable[..., Agent]
) -> None:
    agent = small_agent()
    assert agent.window == 1024
    with pytest.raises(
        PlayError, match=r"the question is [\d,]+ tokens long, and .*base has room for 9\d\d"
    ):
        check_fits(agent, "zzzz? " * 600)
    check_fits(agent, "How many?")
    wide = make(
        tmp_path / "wide.db",
        "".join(f"CREATE TABLE a_table_of_many_{i:03} (x);" for i in range(120)),
    )
    with (
        in_this_process(wide, "How many?", tmp_path / "data") as asked,
        pytest.raises(
            PlayError,
            match=r"the names of 120 tables are [\d,]+ tokens long, more than .*\(1,024\): use",
        ),
    ):
        asked(agent)


def test_seeds_and_temperatures_decide_what_is_sampled(
    shop: Path, tmp_path: Path, small_agent: Callable[..., Agent]
) -> None:
    with in_this_process(shop, "How many?", tmp_path / "data") as asked:

        def texts(sampling: Sampling) -> list[str]:
            return [step.text for step in asked(small_agent(sampling)).steps]

        assert texts(Sampling()) == texts(Sampling(seed=1))  # greedy
        assert texts(Sampling(1.0, 1)) == texts(Sampling(1.0, 1)) != texts(Sampling(1.0, 2))
        assert texts(Sampling(0.01, 1)) != texts(Sampling(1.0, 1))
    assert str(Sampling()) == "greedy"
    assert str(Sampling(0.7, 3)) == "temperature 0.7, seed 3"
