"""Episodes on a database of the user's own, in this process: how they end, what is shown of them,
and what a local model samples."""

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
from shared.errors import DatabaseLoadError
from shared.models import Outcome
from tests.trainer.play.conftest import run_script
from trainer.config import GRPOConfig
from trainer.errors import PlayError
from trainer.play.agent import Agent, Options, Sampling, local_agent
from trainer.play.database import examine, host
from trainer.play.display import Screen, no_answer, printable
from trainer.play.played import PlayedQuestion
from trainer.play.session import Display, ask, check_fits
from trainer.rollout.generators.base import EpisodeView

GREEDY = Sampling()


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
        cycle = ("QUERY: SELECT x FROM orders", "DESCRIBE: orders") * 3
        assert no_answer(ask_with(text_agent("SAMPLE: orders", *cycle, steps=7))) == (
            "no answer within 7 steps: the agent took the same 2 actions 3 times in a row"
        )
        trying = ask_with(text_agent(*texts[:3], "DESCRIBE: orders", steps=4))
        assert no_answer(trying) == "no answer within 4 steps; --step-budget allows more"


def test_damage_found_during_play_is_named(tmp_path: Path) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000)"
    table = "CREATE TABLE t (i INTEGER PRIMARY KEY, x TEXT)"
    script = f"{table}; {numbers} INSERT INTO t SELECT i, hex(i) FROM n"
    path = run_script(tmp_path / "worn.db", script)
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
    path = run_script(tmp_path / "nasty.db", "CREATE TABLE t (x TEXT)")
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
    wide = run_script(
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
