"""Resets of an id in the pool, and replay."""

import asyncio
import random

import pytest

from shared.errors import Behind, Conflict, UnknownEpisode
from tests.env_server.pool_driver import Driver, read

pytestmark = pytest.mark.anyio


async def test_two_resets_at_once_make_one_episode(driver: Driver) -> None:
    driver.sql.open.clear()
    both = [asyncio.create_task(driver.reset(actions=[driver.query])) for _ in range(2)]
    await asyncio.sleep(0.01)
    driver.sql.open.set()
    replies = await asyncio.gather(*both)
    assert replies[0] == replies[1]
    assert len(driver.pool) == 1


@pytest.mark.parametrize("last", ["QUERY: SELECT 1", "ANSWER: 1"])
async def test_actions_past_the_end_are_a_conflict(driver: Driver, last: str) -> None:
    for actions, budget, end in (
        (["ANSWER: x", last], None, 1),
        ([driver.query, driver.query, last], 2, 2),
        ([driver.query, "ANSWER: x", last], 2, 2),
    ):
        with pytest.raises(Conflict, match=f"over after {end} of {len(actions)} actions"):
            await driver.reset(actions=actions, step_budget=budget)
    with pytest.raises(UnknownEpisode):
        await driver.state()
    assert not driver.pool.ended  # so that no figure counts what was refused
    assert not driver.sql.jobs


@pytest.mark.parametrize("seed", range(5))
async def test_random_requests_keep_one_history_whose_replies_are_replays(
    driver: Driver, seed: int
) -> None:
    """Random steps and resets, most of them wrong, against a model of a list of actions."""
    draw = random.Random(seed)
    actions = [driver.describe, driver.query, "QUERY: SELECT 1", "QUERY: SELEC 1"]
    await driver.reset(step_budget=8)
    history: list[str] = []
    for _ in range(60):
        action, at = draw.choice(actions), draw.randint(0, len(history) + 1)
        if draw.random() < 0.7:
            expected = history if at < len(history) and history[at] == action else None
            if at == len(history) < 8:
                expected = history = [*history, action]
            call, shown = driver.step(action, at), at + 1
        else:
            wanted = [*history[:at], *draw.choices(actions, k=draw.randint(0, 1))][:8]
            agree = all(a == b for a, b in zip(wanted, history, strict=False))
            expected = max(wanted, history, key=len) if agree else None
            call, shown = driver.reset(actions=wanted, step_budget=8), len(wanted)
        if expected is None:
            with pytest.raises((Conflict, Behind)):
                await call
        else:
            history = expected
            reply = read(await call)
            assert reply.observation.action_history == history[:shown]
            replay = read(await driver.reset("other", actions=history[:shown], step_budget=8))
            assert reply == replay
            await driver.pool.close("other")
        assert (await driver.state()).action_history == history
    assert len(history) > 3
