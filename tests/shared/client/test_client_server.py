"""The client with an app in this process, most often the real server.

`tests/chaos/test_soak.py` kills real servers.
"""

from pathlib import Path
from typing import Any

import pytest

from env_server.app import create_app
from env_server.settings import Settings
from shared.client import ClientLimits, in_process
from shared.errors import ActionParseError, CapacityReached, SQLEnvError, UnknownQuestion
from shared.models import ResetResult
from tests.shared.client.fake_server import FakeServer

pytestmark = pytest.mark.filterwarnings("error")


def app(data_dir: Path, **settings: Any) -> Any:
    return create_app(Settings(data_dir=data_dir, sql_workers=1, **settings))


@pytest.mark.parametrize("rewards", ["end", "step", None])
def test_rewards_are_withheld_if_asked_and_so_after_a_rebuild(tiny_data, rewards):
    server = app(tiny_data)
    with in_process(server).sync() as client:
        first = client.reset(question_id="shop-4", rewards=rewards)
        client.step(first.episode_id, "QUERY: SELECT 1")
        for held in server.state.service.pool.store.owners.values():
            for episode in list(held.active.values()):
                server.state.service.pool.store.remove(episode)  # as a restart would
        reply = client.step(first.episode_id, "QUERY: SELECT 2")
        assert client.stats.rebuilds == 1
        shown = {reply.reward is None, reply.observation.reward is None, reply.info.ledger is None}
        assert shown == {rewards == "end"}
        if rewards == "end":
            with pytest.raises(ValueError, match="rewards 'step'"):
                assert reply.ledger
        last = client.step(first.episode_id, "ANSWER: x")
        assert (last.reward, last.info.ledger is None) == (0.0, rewards == "end")


def test_errors_of_the_real_server_arrive_as_their_classes(tiny_data):
    with in_process(app(tiny_data, capacity=2), ClientLimits(max_attempts=1)).sync() as client:
        with pytest.raises(UnknownQuestion, match="no such thing"):
            client.reset(question_id="no such thing")
        replies = client.reset_many([{"seed": 1}, {"seed": 2}, {"seed": 3}])
        assert [type(reply) for reply in replies] == [ResetResult, ResetResult, CapacityReached]
        episode_id = client.open_episodes[0]
        with pytest.raises(ActionParseError, match="DESCRIBE, SAMPLE, QUERY, ANSWER"):
            client.step(episode_id, "let me think")
        assert client.step(episode_id, "QUERY: SELECT 1").observation.step_count == 1
        client.close_episode(episode_id)
        assert isinstance(client.reset(seed=3), ResetResult)


def test_a_batch_over_the_servers_limits_is_halved(tiny_data):
    with in_process(app(tiny_data, max_batch=8, max_body_bytes=2048)).sync() as client:
        replies = client.reset_many([{"seed": i} for i in range(50)])
        ids = [reply.episode_id for reply in replies if isinstance(reply, ResetResult)]
        assert len(set(ids)) == 50
        steps = client.step_many((name, f"QUERY: SELECT {'1' * 500}") for name in ids)
        assert not [step for step in steps if isinstance(step, SQLEnvError)]
        steps = client.step_many((name, f"QUERY: SELECT {n}") for n, name in enumerate(ids))
        results = [step.observation.result for step in steps]  # type: ignore[union-attr]
        assert results == [f"{n}\n{n}" for n in range(50)], "each reply is its own step's"


def test_items_without_room_in_a_batchs_reply_are_sent_again(tiny_data):
    with in_process(app(tiny_data, max_reply_bytes=4096)).sync() as client:
        replies = client.reset_many([{"seed": i} for i in range(20)])
        ids = [reply.episode_id for reply in replies if isinstance(reply, ResetResult)]
        assert len(set(ids)) == 20
        steps = client.step_many((name, "QUERY: SELECT 1") for name in ids)
        assert [step.observation.step_count for step in steps] == [1] * 20  # type: ignore[union-attr]
        assert client.stats.batches > 4, "a reply of 4,096 bytes has no room for 20"


class WithLifespan(FakeServer):
    def __init__(self, fail_at: str = "") -> None:
        super().__init__()
        self.fail_at = fail_at
        self.events: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["state"] == {"pool": "open"}
            scope["state"]["request"] = "this one's alone"
            assert self.events == ["startup"]
            if scope["path"] == "/state":
                raise ValueError("a bug in the app")
            return await super().__call__(scope, receive, send)
        scope["state"]["pool"] = "open"
        for event in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{event}"
            if self.fail_at == event:
                await send({"type": f"lifespan.{event}.failed", "message": "no data"})
                raise LookupError("no data")
            self.events.append(event)
            await send({"type": f"lifespan.{event}.complete"})


async def test_in_process_runs_the_apps_lifespan():
    app = WithLifespan()
    async with in_process(app) as client:
        await client.reset(episode_id="e")
        assert (await client.step("e", "QUERY: 0")).observation.step_count == 1
        with pytest.raises(SQLEnvError, match="HTTP 500"):
            await client.state("e")
    assert app.events == ["startup", "shutdown"]


@pytest.mark.parametrize("event", ["startup", "shutdown"])
async def test_in_process_raises_what_the_app_raised(event):
    with pytest.raises(LookupError, match="no data"):
        async with in_process(WithLifespan(fail_at=event)):
            assert event == "shutdown"


async def test_a_client_that_is_not_entered_says_so():
    client = in_process(WithLifespan())
    with pytest.raises(RuntimeError, match="async with"):
        await client.metadata()
    await client.aclose()
