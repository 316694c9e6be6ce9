"""The bytes that episodes hold, their owners and the places of each."""

import asyncio
from collections.abc import Iterator

import pytest

from env_server.episodes import Caller
from env_server.pool import EpisodePool
from env_server.questions import QuestionBank
from shared.dataset import Question
from shared.errors import CapacityReached, EpisodeTooLarge
from shared.models import ResetRequest, StepRequest
from tests.env_server.pool_driver import Driver, read

pytestmark = pytest.mark.anyio
TRAINER = Caller("trainer")
ONE, TWO = Caller("agent-1", is_agent=True), Caller("agent-2", is_agent=True)
MIB = 1024 * 1024
LONG = "DESCRIBE: " + "x" * 18_990  # 19,000 bytes


@pytest.fixture
def small(bank: QuestionBank, question: Question) -> Iterator[Driver]:
    """Room for 3 long actions per episode, for 55 in all, and for 27 per agent."""
    driver = Driver(
        bank, question, step_budget=9, max_episode_bytes=60_000, max_held_bytes=MIB,
        capacity=200, agent_capacity=100,
    )  # fmt: skip
    yield driver
    driver.sql.runner.close()


async def reset(pool: EpisodePool, caller: Caller, episode_id: str | None = "e") -> bytes:
    return await pool.reset(ResetRequest(episode_id=episode_id, seed=1), caller)


async def step(pool: EpisodePool, caller: Caller, action: str = "QUERY: SELECT 1") -> bytes:
    return await pool.step(StepRequest(episode_id="e", action=action), caller)


# -- bytes


async def test_a_replay_of_too_much_is_refused_before_anything_is_played(small: Driver) -> None:
    with pytest.raises(EpisodeTooLarge):
        await small.reset(actions=[LONG] * 4)
    assert (len(small.pool), small.sql.jobs) == (0, 0)
    await small.reset(actions=[LONG] * 3)


async def test_all_episodes_together_are_bounded_and_finished_ones_give_way(small: Driver) -> None:
    for number in range(18):
        await small.reset(f"{number}", actions=[LONG] * 2)
        await small.step("ANSWER: x", 2, f"{number}")
    for number in range(18, 38):
        await small.reset(f"{number}", actions=[LONG] * 2)
    assert small.pool.store.held_bytes <= MIB
    assert small.pool.counts["evicted"] > 5
    with pytest.raises(CapacityReached, match="SQLENV_MAX_HELD_BYTES"):
        await asyncio.gather(*(small.step(LONG, 2, f"{number}") for number in range(18, 38)))
    assert small.pool.store.finished == 0
    assert (await small.state("37")).step_count == 2, "a refused step is not counted"
    await small.pool.close("18")
    assert read(await small.step(LONG, 2, "37")).observation.step_count == 3


async def test_an_action_that_names_the_history_does_not_change_it(small: Driver) -> None:
    """The stored reply has a place for the history, which no text can imitate."""
    await small.reset()
    hostile = """QUERY: SELECT '"action_history":[]' AS "action_history"""
    first = await small.step(hostile + '"', 0)
    assert read(first).observation.action_history == [hostile + '"']
    assert await small.step(hostile + '"', 0) == first
    assert '"action_history":[]' in read(first).observation.result


# -- owners


async def test_an_agent_has_its_places_and_takes_none_of_the_others(
    bank: QuestionBank, question: Question
) -> None:
    pool = Driver(bank, question, capacity=4, agent_capacity=2).pool
    for name in ("a", "b"):
        await reset(pool, ONE, name)
    with pytest.raises(CapacityReached, match=r"2 places of the key agent-1.*AGENT_CAPACITY"):
        await reset(pool, ONE, "c")
    await reset(pool, TWO, "c")
    await reset(pool, TRAINER, "d")
    with pytest.raises(CapacityReached, match="SQLENV_CAPACITY"):
        await reset(pool, TRAINER, "e")
    await pool.close("a", ONE)
    await reset(pool, ONE, "c")


async def test_an_agent_holds_its_share_of_the_bytes(small: Driver) -> None:
    pool = small.pool

    async def fill() -> None:
        for number in range(30):
            await pool.reset(ResetRequest(episode_id=f"{number}", seed=1, actions=[LONG] * 3), ONE)

    with pytest.raises(CapacityReached, match="key agent-1 hold"):
        await fill()
    assert pool.store.held_bytes <= MIB / 2
    await pool.reset(ResetRequest(episode_id="e", seed=1, actions=[LONG] * 3), TWO)


async def test_an_agents_finished_episodes_do_not_evict_those_of_others(
    bank: QuestionBank, question: Question
) -> None:
    driver = Driver(bank, question, capacity=9, finished_capacity=4)
    for caller, names in ((TRAINER, "ab"), (ONE, "cdefgh")):
        for name in names:
            await reset(driver.pool, caller, name)
            await driver.pool.step(StepRequest(episode_id=name, action="ANSWER: x"), caller)
    kept = {name for held in driver.pool.store.owners.values() for name in held.finished}
    assert kept == {*"ab", *"gh"}
