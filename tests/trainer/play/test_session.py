"""Episodes on a database of the user's own, in this process: how they end, what is shown of them,
what replaces an action that failed before, and what a local model samples."""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import in_process
from shared.console import printable
from shared.errors import DataError
from shared.models import Outcome
from tests.trainer.play.conftest import run_script
from trainer.cli import configured
from trainer.config import GRPOConfig
from trainer.play.agent import Agent, local_agent
from trainer.play.database import examine, host
from trainer.play.display import Screen, no_answer
from trainer.play.played import PlayedQuestion
from trainer.play.session import ask
from trainer.rollout.generators.base import EpisodeView, Sample
from trainer.rollout.tokens import codec_of

Asked = Callable[..., PlayedQuestion]
BAD, GOOD = "QUERY: SELECT x FROM orders", "QUERY: SELECT count(*) FROM orders"


class Texts:
    """A policy that writes these, one per turn, and then stops; it counts how often it is asked."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = texts, 0

    async def act_one(self, view: EpisodeView) -> str | None:
        self.asked += 1
        return next(iter(self.texts[len(view.actions) :]), None)

    def run_all(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return [asyncio.run(call()) for call in calls]


def text_agent(*texts: str, steps: int = 8, retry: Any = None) -> Agent:
    config = GRPOConfig(step_budget=steps)
    return Agent(config, "a script", Texts(*texts), retry or Texts(*texts))


@contextmanager
def in_this_process(db: Path, folder: Path) -> Iterator[Asked]:
    """`ask` for one question on a server that is an object: call it with an agent."""
    _, [question_id] = host(examine(db), ["How [red]many[/red]?"], folder)

    def asked(agent: Agent, screen: Screen | None = None) -> PlayedQuestion:
        played = PlayedQuestion("How [red]many[/red]?", ["many"])
        ask(agent, client, question_id, played, screen or Screen(Console(quiet=True)))
        return played

    settings = Settings(data_dir=folder, sql_workers=1, follow_links=True)
    with in_process(create_app(settings)).sync() as client:
        yield asked


@pytest.fixture
def asked(shop: Path, tmp_path: Path) -> Iterator[Asked]:
    with in_this_process(shop, tmp_path / "data") as function:
        yield function


@pytest.mark.parametrize(
    ("texts", "outcome", "said", "reason"),
    [
        ((GOOD, "ANSWER: 3"), Outcome.ANSWERED, "3", ""),
        (("ANSWER: [1, 2]",), Outcome.ANSWERED, "[1, 2]", "the answer is not confirmed"),
        ((BAD, "DESCRIBE: orders", GOOD, "SAMPLE: orders"), Outcome.BUDGET, None, "--step-budget"),
        ((BAD, *["DESCRIBE: orders"] * 3), Outcome.BUDGET, None, "no query worked"),
        (("DESCRIBE: orders",), Outcome.ABANDONED, None, "the agent stopped"),
    ],
)
def test_how_an_episode_ends(
    asked: Asked, texts: tuple[str, ...], outcome: Outcome, said: str | None, reason: str
) -> None:
    played = asked(text_agent(*texts, steps=4))
    assert (played.outcome, played.said, len(played.steps)) == (outcome, said, len(texts))
    assert reason == "" or reason in no_answer(played)
    played_json = json.loads(json.dumps(played.as_json()))
    assert played_json["tokens"] is None  # nobody counted
    assert played_json["outcome"] == str(outcome)


def test_a_failed_action_is_replaced_and_never_sent_again(asked: Asked) -> None:
    retry = Texts("", "", GOOD)
    played = asked(text_agent(BAD, "DESCRIBE: orders", BAD + ";", "ANSWER: 3", retry=retry))
    assert [step.text for step in played.steps] == [BAD, "DESCRIBE: orders", GOOD, "ANSWER: 3"]
    assert (played.answer, retry.asked) == ("3", 1)


def test_an_agent_that_keeps_to_a_failed_action_ends(asked: Asked) -> None:
    retry = Texts(BAD, BAD, BAD)
    played = asked(text_agent(BAD, BAD, retry=retry))
    assert (played.outcome, len(played.steps)) == (Outcome.ABANDONED, 1)
    assert retry.asked > 1
    assert "only repeated an action that had failed" in no_answer(played)


def test_damage_found_during_play_stops_it(tmp_path: Path) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000)"
    table = "CREATE TABLE t (i INTEGER PRIMARY KEY, x TEXT)"
    script = f"{table}; {numbers} INSERT INTO t SELECT i, hex(i) FROM n"
    path = run_script(tmp_path / "worn.db", script)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xff" * (4096 * 5)
    path.write_bytes(content)
    with in_this_process(path, tmp_path / "data") as asked, pytest.raises(DataError):
        asked(text_agent("QUERY: SELECT 1", "QUERY: SELECT sum(length(x)) FROM t"))


def test_cells_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    nasty = "\x1b[2J[bold]red[/bold]\x07\u202e"
    path = run_script(tmp_path / "nasty.db", "CREATE TABLE t (x TEXT)")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO t VALUES (?)", [nasty])
        connection.commit()
    file = StringIO()
    screen = Screen(Console(file=file, width=80, force_terminal=True))
    with in_this_process(path, tmp_path / "data") as asked:
        shown_cell = "\\x1b[2J[bold]red[/bold]\\x07\\u202e"
        played = asked(text_agent("QUERY: SELECT x FROM t", f"ANSWER: {shown_cell}"), screen)
        screen.end(played)
        screen.end(asked(text_agent("SAMPLE: t", f"ANSWER: {nasty}"), screen))
    shown = file.getvalue()
    assert "How [red]many[/red]?" in shown
    assert "\\x1b[2J[bold]red[/bold]\\x07" in shown
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert printable("é 漢\u3000字\n\t\x00") == "é 漢\u3000字\n\t\\x00"


# -- a local model


def test_a_schema_too_long_for_the_window_ends_the_question(
    tmp_path: Path, model: Any, tokenizer: Any
) -> None:
    """The model is a random tiny one with a window of 1,024 tokens, loaded as the command does."""
    base = tmp_path / "base"
    model.save_pretrained(base)
    tokenizer.save_pretrained(base)
    agent = local_agent(configured(None, {"model_name": str(base)})[1], "")
    tables = (f"CREATE TABLE a_table_of_many_{i:03} (x);" for i in range(120))
    wide = run_script(tmp_path / "wide.db", "".join(tables))
    with in_this_process(wide, tmp_path / "data") as asked:
        assert "use a model with a larger one" in no_answer(asked(agent))


class Spelled:
    """A generator that samples the ids of these texts, one per turn, and keeps what it was fed."""

    limit = 1000

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self.codec = codec_of(tokenizer)
        self.texts, self.contexts, self.context = list(texts), list[list[int]](), list[int]()

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self.context = []

    def restart(self, row: int, kept: int) -> None:
        del self.context[kept:]

    def sample(self, appended: dict[int, Sequence[int]]) -> dict[int, Sample]:
        ids = self.codec.action(self.texts.pop(0))
        self.contexts.append([*self.context, *appended[0]])
        self.context = [*self.contexts[-1], *ids]
        return {0: Sample(ids, [0.0] * len(ids))}


def test_after_a_replaced_turn_the_model_reads_the_one_that_was_taken(
    asked: Asked, tokenizer: Any
) -> None:
    spelled = Spelled(tokenizer, BAD, BAD, "ANSWER: 3")
    retry = Spelled(tokenizer, BAD, GOOD)
    config = GRPOConfig(step_budget=4, system_prompt="short")
    agent = Agent(config, "spelled", spelled, retry, spelled.codec, tokenizer)
    played = asked(agent)
    assert [step.text for step in played.steps] == [BAD, GOOD, "ANSWER: 3"]
    assert spelled.contexts[1] == retry.contexts[0] == retry.contexts[1]
    read = spelled.contexts[2]
    assert read[: len(spelled.contexts[1])] == spelled.contexts[1]
    text = spelled.codec.text(read)
    assert (text.count(BAD), text.count(GOOD)) == (1, 1)
