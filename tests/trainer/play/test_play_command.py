"""`python -m trainer play`: the command, with a server process and a served or shipped model."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shared.console import errors
from tests.trainer.chat_server import ChatServer, Messages, refusal, served
from tests.trainer.play.conftest import killed_writer, run_script, still
from trainer import __main__ as cli
from trainer.config.presets import TRAINED_MODEL
from trainer.play import play_command
from trainer.run import progress

ROOT = Path(__file__).parents[3]


def play(*arguments: object) -> Result:
    result = CliRunner().invoke(cli.app, ["play", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def one_line(text: str) -> str:
    return " ".join(text.split())


def scripted(*texts: Any) -> Callable[[Messages], Any]:
    """A model that writes these, one per turn; it counts the turns of the conversation."""
    return lambda messages: texts[sum(message["role"] == "assistant" for message in messages)]


def with_model(chat: ChatServer, *options: object) -> Result:
    """Play one attempt of the model that `chat` serves."""
    served_by = ("--base-url", chat.url, "--model", chat.models[0])
    return play(*served_by, "--samples", 1, *options)


def test_a_model_behind_a_server_answers_and_every_step_is_shown(shop):
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
        result = with_model(chat, "--db", shop, "-q", "How many orders?")
    shown = result.output
    assert result.exit_code == 0
    assert "includes shop.db-wal" in shown
    assert f"tester, served by {chat.url}" in shown
    assert "question  How many orders?" in shown
    assert "tables    orders" in shown
    assert re.search(
        r" 1 DESCRIBE orders   \(2 tokens, .* s\)\n   orders: 4 rows\n   order_id INTEGER primary",
        shown,
    )
    assert "parsed from: I will count them." in shown
    assert re.search(r"\n   SELECT count\(\*\)\n   FROM orders\n   count\(\*\)\n   4\n", shown)
    assert re.search(
        r"3 QUERY how about this .*\n   the agent's text, which has no action, ran as a QUERY\n"
        r'   error: near "how"',
        shown,
    )
    assert re.search(r"╭─ answer, unchecked ─+╮\n│ 4 +│", shown)
    assert "ANSWER" not in shown
    assert re.search(r"4 steps, 16 tokens, ", shown)
    assert [one["temperature"] for one in chat.requests] == [0.0] * 4
    assert "How many orders?" in chat.requests[0]["messages"][1]["content"]
    assert "reward" not in json.dumps(chat.requests)
    after = still(shop.parent)[0]
    assert [after[name] for name in ("shop.db", "shop.db-wal")] == [
        before[name] for name in ("shop.db", "shop.db-wal")
    ]


def test_the_shipped_model_answers_two_questions_as_json(shop, monkeypatch):
    monkeypatch.chdir(ROOT)
    before = still(shop.parent)
    questions = ("How many orders are there?", "What is the highest total of an order?")
    asked = (word for one in questions for word in ("-q", one))
    result = play("--db", shop, "--json", "-", *asked)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["question"] for line in lines] == list(questions)
    for line in lines:
        assert (line["database"], line["agent"]) == (str(shop), TRAINED_MODEL)
        assert line["tables"] == ["orders"]
        [attempt] = line["attempts"]  # the toy's default
        assert (attempt["said"] is not None) == (attempt["outcome"] == "answered")
        assert line["tokens"] == sum(step["tokens"] for step in attempt["steps"]) > 0
        assert [one["step"] for one in attempt["steps"]] == [*range(1, len(attempt["steps"]) + 1)]
    assert result.exit_code == (0 if all(line["answer"] for line in lines) else 3)
    assert still(shop.parent) == before


def test_a_file_that_is_written_to_meanwhile_is_noted_and_json_goes_to_a_file(shop, tmp_path):
    def somebody_writes(messages: Messages) -> str:
        run_script(shop, "INSERT INTO orders (buyer) VALUES ('Di')")
        return "ANSWER: 3"

    path = tmp_path / "answers.jsonl"
    with served(ChatServer(somebody_writes)) as chat:
        result = with_model(chat, "--db", shop, "-q", "How many by Zed?", "--json", path)
    assert result.exit_code == 3  # no query returned it
    (played,) = map(json.loads, path.read_text().splitlines())
    assert (played["answer"], played["attempts"][0]["said"]) == (None, "3")
    assert played["unknown_names"] == ["Zed"]
    assert f"note: {shop} was written to meanwhile" in result.stderr
    assert f"sqlite3 '{shop}' '.backup copy.sqlite'" in result.stderr


def test_an_error_ends_a_typed_question_alone(shop, monkeypatch):
    type_lines(monkeypatch, "And now?", "How many?")
    with served(ChatServer(scripted("QUERY: SELECT count(*) FROM orders", "ANSWER: 3"))) as chat:
        chat.faults.append(refusal(400, "not today"))
        result = with_model(chat, "--db", shop)
    assert result.exit_code == 0
    assert re.search(r"error: .*not today", result.output)
    assert re.search(r"╭─ answer, unchecked ─+╮\n│ 3 +│", result.output)


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Let these be typed at the prompt, on a terminal without a line editor."""

    class Terminal:
        stdin = SimpleNamespace(isatty=lambda: True)

        @property
        def stdout(self) -> Any:
            return sys.stdout

    monkeypatch.setattr(play_command, "sys", Terminal())
    rest = iter(lines)

    def read(_: str) -> str:
        for line in rest:
            return line
        raise EOFError

    monkeypatch.setattr(errors, "input", read)


def test_the_query_is_changed_and_run_in_the_same_sandbox(shop, monkeypatch):
    before = still(shop.parent)
    type_lines(
        monkeypatch,
        *("How many?", "sql", "SELECT buyer, total FROM orders WHERE total > 8", "sql", ""),
        *("sql", "DELETE FROM orders", "sql", 'SELECT sum(total) / count(*), "nobody" FROM orders'),
    )
    with served(ChatServer(scripted("QUERY: SELECT count(*) FROM orders", "ANSWER: 3"))) as chat:
        result = with_model(chat, "--db", shop)
        asked = len(chat.requests)
    assert result.exit_code == 0
    assert asked == 2  # a query of the user's takes no model
    assert result.output.count("   buyer | total\n   Ann | 10.5\n   Bo | 99.0\n") == 2
    assert "error: only one SELECT statement is allowed" in result.output
    assert '(note: "nobody" is no column' in result.output
    assert still(shop.parent) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("csv", "count(*)\n3\nbuyer\nAnn\n"),
        (
            "json",
            '"query": "SELECT buyer FROM orders LIMIT 1", "error": null, "columns": ["buyer"]',
        ),
    ],
)
def test_a_changed_query_is_written_in_the_format(shop, monkeypatch, form, written):
    typed = ("How many?", "sql", "SELECT buyer FROM orders LIMIT 1", "sql", "SELECT x FROM orders")
    type_lines(monkeypatch, *typed)
    answers = scripted("QUERY: SELECT count(*) FROM orders", "ANSWER: 3")
    with served(ChatServer(answers)) as chat:
        result = with_model(chat, "--db", shop, "--format", form)
    assert written in result.stdout
    assert "error: no such column: x" in result.stderr


# -- formats


ROWS = "QUERY: SELECT buyer, total FROM orders ORDER BY total DESC"


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ('[["Bo", 99.0], ["Ann", 10.5], ["Cy, \\"C\\"", 7.25], [null, 1]]', None),
        pytest.param("Bo", "buyer\nBo\n", marks=pytest.mark.slow),
        pytest.param("Bo, Ann", "buyer\nBo\nAnn\n", marks=pytest.mark.slow),
        pytest.param('[["Bo", 99]]', "buyer,total\nBo,99.0\n", marks=pytest.mark.slow),
    ],
)
def test_an_answer_is_the_rows_of_its_query_as_csv(shop, said, written):
    change = """UPDATE orders SET buyer = 'Cy, "C"' WHERE buyer = 'Cy'"""
    run_script(shop, f"{change}; INSERT INTO orders (total) VALUES (1)")
    whole = 'buyer,total\nBo,99.0\nAnn,10.5\n"Cy, ""C""",7.25\n,1.0\n'
    with served(ChatServer(scripted(ROWS, f"ANSWER: {said}"))) as chat:
        result, shown = (
            with_model(chat, "--db", shop, "-q", "Who?", "--format", form)
            for form in ("csv", "table")
        )
    assert result.exit_code == 0
    assert result.stdout == (whole if written is None else written)
    assert "question: 1/1, 2 turns" in result.stderr
    assert "│ Bo" in shown.stdout
    assert ("│ NULL" in shown.stdout) == (written is None)


def test_no_answer_is_no_row_and_says_why(shop):
    with served(ChatServer(scripted(ROWS, "ANSWER: 5"))) as chat:
        result = with_model(chat, "--db", shop, "-q", "Who?", "--format", "csv")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "the answer is not confirmed: no query of the agent's returned it" in result.stderr


def test_a_cut_result_is_noted(shop):
    many = "INSERT INTO orders (buyer) SELECT 'X' FROM orders AS a, orders AS b, orders AS c"
    run_script(shop, many)
    rows = ["X"] * 20
    texts = ("QUERY: SELECT buyer FROM orders WHERE buyer = 'X'", f"ANSWER: {json.dumps(rows)}")
    with served(ChatServer(scripted(*texts))) as chat:
        played = with_model(chat, "--db", shop, "-q", "Who?", "--format", "csv")
    assert played.stdout.splitlines() == ["buyer", *rows]
    assert "note: there are more rows than the environment shows" in played.stderr


def test_a_log_gets_lines_of_progress_and_stdout_stays_json(shop, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    texts = ("DESCRIBE: orders", "QUERY: SELECT count(*) FROM orders", "ANSWER: 3")
    with served(ChatServer(scripted(*texts))) as chat:
        asked = ("--db", shop, "-q", "One?", "-q", "Two?", "--samples", 2)
        result = with_model(chat, *asked, "--json", "-")
    assert [json.loads(line)["rows"] for line in result.stdout.splitlines()] == [[["3"]]] * 2
    lines = result.stderr.splitlines()
    for number in (1, 2):
        own = [line for line in lines if line.startswith(f"question {number} of 2: ")]
        assert len(own) >= 6
        assert own[0].startswith(f"question {number} of 2: 0/2, ")
        assert own[-1].startswith(f"question {number} of 2: 2/2, 6 turns, ")


# -- notes

NOTES = """
[tables]
orders = "what was sold"

[columns]
Orders.total = "in euros, with tax"

[[questions]]
question = "How many orders above 50 euros?"
sql = '''SELECT count(*)
FROM orders WHERE total > 50'''

[[questions]]
question = "Who bought first?"
sql = "SELECT buyer FROM orders LIMIT 1"
"""


def test_an_agent_reads_the_notes_beside_a_database(shop):
    (shop.parent / "shop.notes.toml").write_text(NOTES)
    texts = ("DESCRIBE: orders", "QUERY: SELECT count(*) FROM orders", "ANSWER: 3")
    with served(ChatServer(scripted(*texts))) as chat:
        result = with_model(chat, "--db", shop, "-q", "How many orders above 5 euros?")
        system, *read = (one["content"] for one in chat.requests[-1]["messages"])
    assert result.exit_code == 0
    assert re.search(r"notes +.*shop.notes.toml: descriptions of 1 table and 1 col", result.output)
    assert any("orders: 3 rows -- what was sold\n" in text for text in read)
    assert any("total REAL" in text and " -- in euros, with tax" in text for text in read)
    _, _, hint = system.partition("Queries that answered earlier questions about this database:\n")
    first, second = hint.strip().split("\n\n")
    query = "QUERY: SELECT count(*) FROM orders WHERE total > 50"
    assert first == f"How many orders above 50 euros?\n{query}"
    assert second.startswith("Who bought first?")


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        ("[tables]\ngone = 'x'", "the database has no table 'gone'"),
        ("[columns]\norders.gone = 'x'", "the table 'orders' has no column 'gone'"),
        ("[[questions]]\nquestion = 'a'\nsql = 'SELECT gone FROM orders'", "no such column: gone"),
        ("[[questions]]\nquestion = 'a'", "questions.0.sql: Field required"),
        ("[table]\norders = 'x'", "table: Extra inputs are not permitted"),
        ("orders = ", "is not TOML"),
        (None, "can't read the notes"),
    ],
)
def test_bad_notes_are_one_line(shop, tmp_path, notes, problem):
    path = tmp_path / "notes.toml"
    if notes is not None:
        path.write_text(notes)
    result = play("--db", shop, "-q", "How many?", "--notes", path, "--model", TRAINED_MODEL)
    assert result.exit_code == 1
    assert problem in one_line(result.output)
    assert str(path) in one_line(result.output)


class Split(ChatServer):
    """Says 3, 3.0 or 7 by the random stream of the turn, all of a query's result."""

    def complete(self, body: dict[str, Any]) -> Any:
        told = any(one["role"] == "assistant" for one in body["messages"])
        said = ("3", "3.0", "7")[body["seed"] % 3]
        with self.lock:  # `answer` is shared by all requests
            text = f"ANSWER: {said}" if told else "QUERY: SELECT count(*), 7 FROM orders"
            self.answer = lambda messages: text
            return super().complete(body)


def test_attempts_are_sampled_and_voted_on(shop, tmp_path):
    path = tmp_path / "answers.jsonl"
    with served(Split(lambda messages: "")) as chat:
        asked = ("--db", shop, "-q", "How many?", "--base-url", chat.url, "--model", "fake")
        shown = [play(*asked, "--samples", 6, "--agree", bar) for bar in (1, 6)]
        assert play(*asked, "--json", path).exit_code in (0, 3)  # 5 attempts, of which 4 must agree
    assert {one["temperature"] for one in chat.requests} == {0.8}
    assert [one.exit_code for one in shown] == [0, 3]
    agreeing = [re.search(r"(\d) of 6 attempts agree", one.output) for one in shown]
    assert agreeing[0] is not None
    assert agreeing[1] is not None
    assert 6 > int(agreeing[0][1]) == int(agreeing[1][1]) >= 3
    assert "answer, unchecked" in shown[0].output
    assert "answer, unchecked" not in shown[1].output
    assert f"only {agreeing[1][0]}, and 6 must (--agree)" in shown[1].output
    assert all("do you mean ...?" in one.output for one in shown)
    (line,) = map(json.loads, path.read_text().splitlines())
    keys = [one["key"] for one in line["attempts"]]
    assert len(keys) == 5
    assert set(keys) <= {"[[3]]", "[[7]]"}
    assert (line["agreeing"], line["agree"]) == (max(map(keys.count, keys)), 4)


# -- what is refused, each in one line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--db", "gone.db", "-q", "How many?"), "no file at gone.db"),
        (
            ("--db", "{shop}", "-q", "How many?", "--model", "./gone"),
            "no model directory at ./gone",
        ),
        (
            ("--db", "{bare}", "-q", "How many?", "--model", TRAINED_MODEL),
            "the database holds no table",
        ),
    ],
)
def test_bad_input_is_one_line(shop, arguments, expected, monkeypatch):
    monkeypatch.chdir(ROOT)
    bare = run_script(shop.parent / "bare.db", "PRAGMA user_version = 7")
    result = play(*(one.format(shop=shop, bare=bare) for one in arguments))
    assert result.exit_code == 1
    assert expected in one_line(result.output)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "Missing option '--db'"),
        (("--db", "x"), "there is no terminal to prompt on"),
        (
            ("--db", "x", "-q", "y", "--base-url", "http://127.0.0.1:9/v1"),
            "name the model that the server serves",
        ),
        (("--db", "x", "-q", "y", "--step-budget", "0"), "--step-budget': Input should be greater"),
        (("--db", "x", "-q", "y", "--set", "temperature=1"), "temperature has no effect here"),
        (("--db", "x", "-q", " "), "is empty"),
        (("--db", "x", "-q", "y", "--json", "-", "--format", "csv"), "is json with --json"),
        (("--db", "x", "-q", "y", "-q", "z", "--format", "csv"), "csv is for one --question"),
        (("--db", "x", "-q", "y", "--agree", "2"), "2 of 1 attempt can't agree"),
    ],
)
def test_contradictions_are_usage_errors(arguments, expected):
    result = play(*arguments)
    assert result.exit_code == 2
    assert expected in one_line(re.sub("[│╭╮╰╯─]", " ", result.output))
