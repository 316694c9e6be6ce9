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
from shared.errors import DataError, SQLEnvError
from shared.models import Outcome
from tests.trainer.play.conftest import run_script
from trainer.config.settings import GRPOConfig
from trainer.errors import ModelServerError
from trainer.play.agent import Agent, local_agent
from trainer.play.database import examine, host
from trainer.play.display import Screen, no_answer
from trainer.play.played import PlayedAttempt, PlayedQuestion
from trainer.play.retry import RetryingGenerator, RetryingPolicy
from trainer.play.session import ask
from trainer.rollout.chat_codec import codec_of
from trainer.rollout.episode import Episode
from trainer.rollout.transcript import Sample
from trainer.run.options import configured

Asked = Callable[..., PlayedQuestion]
BAD, GOOD = "QUERY: SELECT x FROM orders", "QUERY: SELECT count(*) FROM orders"


class Texts:
    """A policy that writes these, one per turn, and then stops; it counts how often it is asked. Of
    several attempts each has its own texts; None is an error of the infrastructure."""

    def __init__(self, *texts: str, attempts: Sequence[Sequence[str | None]] = ()) -> None:
        self.attempts, self.asked = attempts or [texts], 0

    async def act_one(self, episode: Episode) -> str | SQLEnvError | None:
        self.asked += 1
        texts = self.attempts[episode.row.repeat][len(episode.row.texts) :]
        if not texts:
            return None
        return ModelServerError("down") if texts[0] is None else texts[0]

    def run_all(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return [asyncio.run(call()) for call in calls]


def shown_on() -> tuple[StringIO, Screen]:
    file = StringIO()
    return file, Screen(Console(file=file, width=80))


def policy_agent(config: GRPOConfig, texts: Texts, retry: Texts | None = None) -> Agent:
    """Return an agent that writes `texts`, and those of `retry` in place of what failed before."""
    again = (retry or texts).act_one
    return Agent(
        config,
        lambda attempts, _: {"policy": RetryingPolicy(texts, again, attempts), "tokenizer": None},
    )


def text_agent(*texts: str, steps: int = 8, retry: Texts | None = None) -> Agent:
    return policy_agent(GRPOConfig(step_budget=steps), Texts(*texts), retry or Texts(*texts))


@contextmanager
def in_this_process(db: Path, folder: Path) -> Iterator[Asked]:
    """`ask` for one question on a server that is an object: call it with an agent."""
    _, [question_id] = host(examine(db), ["How [red]many[/red]?"], folder)

    def asked(
        agent: Agent, screen: Screen | None = None, samples: int = 1, agree: int = 1
    ) -> PlayedQuestion:
        attempts = [PlayedAttempt() for _ in range(samples)]
        played = PlayedQuestion("How [red]many[/red]?", ["many"], attempts, agree)
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
def test_how_an_episode_ends(asked, texts, outcome, said, reason):
    played = asked(text_agent(*texts, steps=4))
    [attempt] = played.attempts
    assert (attempt.outcome, attempt.said, len(played.steps)) == (outcome, said, len(texts))
    assert reason == "" or reason in no_answer(played)
    played_json = json.loads(json.dumps(played.as_json()))
    assert played_json["tokens"] is None  # nobody counted
    assert played_json["attempts"][0]["outcome"] == str(outcome)


def test_a_failed_action_is_replaced_and_never_sent_again(asked):
    retry = Texts("", "", GOOD)
    played = asked(text_agent(BAD, "DESCRIBE: orders", BAD + ";", "ANSWER: 3", retry=retry))
    assert [step.text for step in played.steps] == [BAD, "DESCRIBE: orders", GOOD, "ANSWER: 3"]
    assert (played.answer, retry.asked) == ("3", 1)


def test_an_agent_that_keeps_to_a_failed_action_ends(asked):
    retry = Texts(BAD, BAD, BAD)
    played = asked(text_agent(BAD, BAD, retry=retry))
    assert (played.attempts[0].outcome, len(played.steps)) == (Outcome.ABANDONED, 1)
    assert retry.asked > 1
    assert "only repeated an action that had failed" in no_answer(played)


# -- several attempts

HIGHEST = "QUERY: SELECT buyer FROM orders ORDER BY total DESC LIMIT 1"
LOWEST = "QUERY: SELECT buyer FROM orders ORDER BY total LIMIT 1"
EMPTY = "QUERY: SELECT buyer FROM orders WHERE total > 100"


def several(
    asked: Asked, *attempts: Sequence[str | None], agree: int = 1
) -> tuple[PlayedQuestion, str]:
    (file, screen), texts = shown_on(), Texts(attempts=attempts)
    agent = policy_agent(GRPOConfig(step_budget=4), texts)
    played = asked(agent, screen, len(attempts), agree)
    screen.end(played)
    return played, file.getvalue()


def test_attempts_that_agree(asked):
    played, shown = several(
        asked, (GOOD, "ANSWER: 3"), (GOOD, "ANSWER: 3.0"), ("QUERY: SELECT 3", "ANSWER: 3"), agree=3
    )
    assert (played.answer, played.leader[0]) == ("3", 3)
    assert "│ 3                     │\n│ 3 of 3 attempts agree │" in shown
    assert "do you mean" not in shown
    assert shown.count("SELECT count(*) FROM orders") == 2  # a step, and where the answer is from
    assert "3 attempts, 6 steps" in shown
    assert [one["key"] for one in played.as_json()["attempts"]] == ["[[3]]"] * 3


def test_attempts_that_disagree_are_a_question_back(asked):
    split = [(HIGHEST, "ANSWER: Bo"), (LOWEST, "ANSWER: Cy"), (HIGHEST, "ANSWER: bo"), (GOOD,)]
    played, shown = several(asked, *split, agree=3)
    assert (played.answer, played.leader[0]) == (None, 2)
    assert "no answer: only 2 of 4 attempts agree, and 3 must (--agree)" in shown
    assert "answer, unchecked" not in shown
    _, _, readings = shown.partition("do you mean ...?\n")
    first, second = (text.removeprefix("QUERY: ") for text in (HIGHEST, LOWEST))
    assert readings.startswith(
        f"1. 2 of 4 attempts agree: {first}\n   buyer\n   Bo\n"
        f"2. 1 of 4 attempts agrees: {second}\n   buyer\n   Cy\n"
    )
    played, shown = several(asked, *split, agree=2)
    assert played.answer == "Bo"
    assert "│ 2 of 4 attempts agree │" in shown
    assert f"do you mean ...?\n1. 1 of 4 attempts agrees: {second}" in shown


def test_nothing_wins_only_if_nothing_else_was_said(asked):
    empty = (EMPTY, "ANSWER: NULL")
    played, shown = several(asked, empty, empty, (EMPTY, "ANSWER: []"), agree=3)
    assert (played.answer, played.leader[0]) == ("NULL", 3)
    assert "│ nothing found         │\n│ 3 of 3 attempts agree │" in shown
    played, shown = several(asked, empty, empty, (HIGHEST, "ANSWER: Bo"), agree=2)
    assert played.answer is None
    assert "only 1 of 3 attempts agrees, and 2 must" in shown
    assert "2. 2 of 3 attempts agree: SELECT buyer FROM orders WHERE" in shown


def test_an_attempt_that_fails_agrees_with_none_and_counts(asked):
    played, shown = several(asked, (None,), (GOOD, "ANSWER: 3"), (GOOD, None), agree=1)
    assert [one.lost for one in played.attempts] == ["down", None, "down"]
    assert played.answer == "3"
    assert "│ 1 of 3 attempts agrees │" in shown
    with pytest.raises(ModelServerError, match="down"):
        several(asked, (None,), (GOOD, None))


def test_no_attempt_has_an_answer(asked):
    played, shown = several(asked, (GOOD,), ("DESCRIBE: orders",), agree=2)
    assert (played.answer, played.leader[0]) == (None, 0)
    assert "no answer: the agent stopped" in shown
    assert "no attempt has one" in shown


def test_only_an_attempt_that_a_query_confirms_has_the_answer(asked):
    played, shown = several(asked, ("ANSWER: 3",), (GOOD, "ANSWER: 3"), agree=2)
    assert played.leader == (2, played.attempts[1])
    assert "from SELECT count(*) FROM orders" in shown
    played, shown = several(asked, ("ANSWER: 3",), ("ANSWER: 3",), agree=2)
    assert played.answer is None
    assert "the answer is not confirmed: no query of the agent's returned it" in shown


# -- what is not confirmed

OWN = """
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, town TEXT, born TEXT, n INTEGER);
INSERT INTO person VALUES
(1, 'Ann', 'Almdorf', '31.12.1999', 2), (2, 'Bo', 'Celm', '01.02.2001', 4),
(3, 'Cy', 'Celm', '15.06.1980', NULL);
"""


@pytest.mark.parametrize(
    ("query", "said", "reason"),
    [
        ('SELECT "nickname" FROM person WHERE id = 1', "nickname", '"nickname" is no column'),
        ('SELECT "email" FROM person WHERE id = 1', "email", '"email" is no column'),
        ("SELECT 172", "172", "the result is written in the statement"),
        ("SELECT name FROM person ORDER BY born LIMIT 1", "Bo", "born has dates such as"),
        ("SELECT sum(town = 'Celm') / count(*) FROM person", "0", "whole numbers were divided"),
        ("SELECT sum(n) / count(*) FROM person", "2", "count(*) counts the rows in which n is"),
        ("SELECT name FROM person WHERE town = 'celm'", "nobody", "no query of the agent's"),
        (
            "SELECT count(*) FROM person WHERE town = 'celm'",
            "0",
            "town has no 'celm'; it has 'Celm'",
        ),
        ("SELECT count(*) FROM person WHERE town = 'Celm'", "2", None),
        ("SELECT 1.0 * sum(town = 'Celm') / count(*) FROM person", "0.667", None),
    ],
)
def test_an_answer_from_a_query_that_misleads_is_not_confirmed(tmp_path, query, said, reason):
    """The agents read no remarks, as those that were trained without them."""
    file, screen = shown_on()
    path = run_script(tmp_path / "own.db", OWN)
    texts = Texts(f"QUERY: {query}", f"ANSWER: {said}")
    agent = policy_agent(GRPOConfig(step_budget=4, explain=[]), texts)
    with in_this_process(path, tmp_path / "data") as asked:
        played = asked(agent, screen)
    screen.end(played)
    assert played.answer == (said if reason is None else None)
    assert played.as_json()["query"] == query
    assert ("answer, unchecked" in file.getvalue()) == (reason is None)
    if reason is not None:
        assert f"the answer is not confirmed: {reason}" in file.getvalue()


def test_another_query_may_confirm_what_a_misleading_one_returned(tmp_path):
    path = run_script(tmp_path / "own.db", OWN)
    good = "SELECT count(*) FROM person WHERE town = 'Celm'"
    with in_this_process(path, tmp_path / "data") as asked:
        played = asked(text_agent(f"QUERY: {good}", "QUERY: SELECT 2", "ANSWER: 2"))
    assert (played.answer, played.as_json()["query"]) == ("2", good)
    assert [*played.attempts[0].doubts] == ["SELECT 2"]


def test_damage_found_during_play_stops_it(tmp_path):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000)"
    table = "CREATE TABLE t (i INTEGER PRIMARY KEY, x TEXT)"
    script = f"{table}; {numbers} INSERT INTO t SELECT i, hex(i) FROM n"
    path = run_script(tmp_path / "worn.db", script)
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 8] = b"\xff" * (4096 * 5)
    path.write_bytes(content)
    with in_this_process(path, tmp_path / "data") as asked, pytest.raises(DataError):
        asked(text_agent("QUERY: SELECT 1", "QUERY: SELECT sum(length(x)) FROM t"))


def test_cells_cannot_write_to_the_terminal(tmp_path):
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


def test_a_schema_too_long_for_the_window_ends_the_question(tmp_path, base):
    """The model is a random tiny one with a window of 1,024 tokens, loaded as the command does."""
    agent = local_agent(configured(None, {"model_name": str(base)})[1])
    tables = (f"CREATE TABLE a_table_of_many_{i:03} (x);" for i in range(120))
    wide = run_script(tmp_path / "wide.db", "".join(tables))
    with in_this_process(wide, tmp_path / "data") as asked:
        assert "use a model with a larger one" in no_answer(asked(agent))


class Spelled:
    """A player that samples the ids of these texts, one per turn, and keeps what it was fed."""

    limit = 1000

    def __init__(self, tokenizer: Any, *texts: str) -> None:
        self.tokenizer, self.codec = tokenizer, codec_of(tokenizer)
        self.texts, self.contexts, self.context = list(texts), list[list[int]](), list[int]()
        self.temperatures: list[float | None] = [None]

    def agent(self) -> Agent:
        config = GRPOConfig(step_budget=4, system_prompt="short")
        return Agent(
            config,
            lambda attempts, _: {
                "generator": RetryingGenerator(self, self.codec, attempts),
                "tokenizer": self.tokenizer,
            },
        )

    def start(self, streams: Sequence[tuple[int, ...]]) -> None:
        self.context = []

    def room(self, row: int) -> int:
        return self.limit - len(self.context)

    def restart(self, row: int, kept: int) -> None:
        del self.context[kept:]

    def heat(self, row: int, temperature: float | None) -> None:
        self.temperatures.append(temperature)

    def sample(self, appended: dict[int, Sequence[int]]) -> dict[int, Sample]:
        ids = self.codec.action(self.texts.pop(0))
        self.contexts.append([*self.context, *appended[0]])
        self.context = [*self.contexts[-1], *ids]
        return {0: Sample(ids, [0.0] * len(ids))}


def test_after_a_replaced_turn_the_model_reads_the_one_that_was_taken(asked, tokenizer):
    spelled = Spelled(tokenizer, BAD, BAD, BAD, GOOD, "ANSWER: 3")
    played = asked(spelled.agent())
    assert [step.text for step in played.steps] == [BAD, GOOD, "ANSWER: 3"]
    first, *again, last = spelled.contexts
    assert again == [again[0]] * 3  # the same context, drawn three times
    assert spelled.temperatures == [None, None, 1.2, 1.2, None, None]
    assert last[: len(again[0])] == again[0]
    assert again[0][: len(first)] == first
    text = spelled.codec.text(last)
    assert (text.count(BAD), text.count(GOOD)) == (1, 1)


def test_a_model_that_keeps_to_a_failed_action_ends(asked, tokenizer):
    spelled = Spelled(tokenizer, *[BAD] * 20)
    played = asked(spelled.agent())
    assert played.attempts[0].stuck
    assert (len(played.steps), len(spelled.contexts)) == (1, 10)
    assert "only repeated an action that had failed" in no_answer(played)
