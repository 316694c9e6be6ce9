"""`SQLEnvTools`, as TRL's own loop calls them. `tests/examples` trains on them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.agents.tools import SQLEnvTools
from shared.client import in_process
from shared.client.sync import SyncSQLEnvClient
from shared.errors import ServerUnreachable
from shared.models import Outcome


@pytest.fixture
def client(tiny_data: Path) -> Iterator[SyncSQLEnvClient]:
    app = create_app(Settings(data_dir=tiny_data, sql_workers=1, capacity=4))
    with in_process(app).sync() as client:
        yield client


def test_an_episode(client):
    tools = SQLEnvTools(client, step_budget=5)
    text = tools.reset(prompt="not an option", question_id="shop-1", seed=None)
    assert "How many customers are there?" in text
    assert "Steps left: 5" in text
    assert "customer_id" in tools.describe("customers")
    assert "Ann" in tools.sample("customers")
    assert "Error: " in tools.query("SELECT nothing")
    assert tools.query(" ").startswith("Error: query needs an argument")
    assert tools.outcome is None
    assert "over" in tools.answer(5)  # type: ignore[arg-type]  # models send numbers
    assert tools.outcome == Outcome.CORRECT
    assert (tools.get_reward() or 0) > 0.9
    assert tools.query("SELECT 1") == "The episode is over."
    tools.reset(question_id="shop-1")
    missed = client.step(client.open_episodes[0], "QUERY: SELECT 1")  # as if it was cancelled
    tools.answer("4")
    assert tools.get_reward() == missed.reward != 0
    for _ in range(9):  # of the server's four places it takes one
        tools.reset(question_id="shop-2")
    assert tools.get_reward() == 0.0


def test_a_server_that_fails_gives_no_reward(client, monkeypatch):
    def fail(*_: Any) -> None:
        raise ServerUnreachable("gone")

    tools = SQLEnvTools(client)
    tools.reset(question_id="shop-1")
    monkeypatch.setattr(client, "step", fail)
    with pytest.raises(ServerUnreachable):
        tools.describe("customers")
    assert tools.get_reward() is None
    assert tools.describe("customers") == "The episode is over."
