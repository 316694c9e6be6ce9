"""The pool: order, idempotency, leases, replay; the bytes that episodes hold, and their owners."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from env_server.episode_pool import EpisodePool
from env_server.questions import QuestionBank
from env_server.store import Caller, memory_of
from shared.dataset import Question
from shared.errors import Behind, CapacityReached, Conflict, NotReady, UnknownEpisode
from shared.models import Outcome, ResetRequest, ResetResult, StepRequest, StepResult
from tests.env_server.pool_driver import Driver

pytestmark = pytest.mark.anyio


# -- starting


async def test_a_reset_that_fails_takes_no_place_and_can_be_sent_again(driver):
    driver.sql.fault = NotReady("no worker")
    with pytest.raises(NotReady):
        await driver.reset(actions=[driver.query])
    assert len(driver.pool) == 0
    driver.sql.fault = None
    assert (await driver.reset(actions=[driver.query])).observation.step_count == 1


# -- steps: order and idempotency


async def test_a_repeated_step_gets_the_same_reply_and_counts_once(driver):
    await driver.reset()
    first = await driver.step(driver.describe, 0)
    second = await driver.step(driver.query, 1)
    jobs = driver.sql.jobs
    assert await driver.step(driver.query, 1) == second
    assert driver.sql.jobs == jobs, "the last reply is stored"
    assert await driver.step(driver.describe, 0) == first, "older replies are played again"
    assert (await driver.state()).step_count == 2


async def test_a_repeat_of_a_step_in_flight_waits_for_it(driver):
    await driver.reset()
    async with driver.in_flight(driver.query, 0) as step:
        repeat = asyncio.create_task(driver.step(driver.query, 0))
    assert await step == await repeat
    assert (await driver.state()).step_count == 1


async def test_steps_of_one_episode_happen_in_the_order_of_arrival(driver):
    await driver.reset()
    actions = [driver.describe, driver.sample, driver.query]
    async with driver.in_flight(driver.describe, 0):
        later = [asyncio.create_task(driver.step(action)) for action in actions[1:]]
    counts = [reply.observation.step_count for reply in await asyncio.gather(*later)]
    assert counts == [2, 3]
    assert (await driver.state()).action_history == actions


async def test_another_action_for_an_answered_step_is_a_conflict(driver):
    await driver.reset()
    await driver.step(driver.describe, 0)
    with pytest.raises(Conflict, match="another action"):
        await driver.step(driver.query, 0)
    assert (await driver.state()).step_count == 1


async def test_closing_waits_for_the_step_in_flight(driver):
    await driver.reset()
    async with driver.in_flight(driver.query, 0) as step:
        close = asyncio.create_task(driver.pool.close("e"))
        late = asyncio.create_task(driver.step(driver.query, 1))
    assert (await step).observation.step_count == 1
    assert (await close).step_count == 1
    with pytest.raises(UnknownEpisode):
        await late


# -- capacity, leases, faults


async def test_a_full_pool_refuses_and_keeps_its_episodes(driver):
    for name in "abc":
        await driver.reset(name)
    with pytest.raises(CapacityReached) as caught:
        await driver.reset("d")
    assert caught.value.details["retry_after_s"] >= 1
    await driver.reset("a")
    await driver.step("ANSWER: x", 0, "b")
    await driver.reset("d")
    assert [(await driver.state(name)).done for name in "abcd"] == [False, True, False, False]


async def test_an_idle_episode_is_abandoned_when_its_lease_ends(driver):
    for name in "abc":
        await driver.reset(name)
    await driver.step("ANSWER: x", 0, "c")
    driver.clock.now += 40
    await driver.step(driver.query, 0, "b")
    driver.clock.now += 30
    assert driver.pool.sweep() == 1
    assert driver.pool.ended[Outcome.ABANDONED] == 1
    assert (await driver.state("b")).step_count == 1
    for name in "ac":
        with pytest.raises(UnknownEpisode):
            await driver.state(name)


async def test_an_episode_in_use_keeps_no_idle_one_alive(driver):
    """Leases end in the order of the last use, not of the resets."""
    await driver.reset("a")
    driver.clock.now += 40
    await driver.reset("b")
    driver.clock.now += 15
    await driver.step(driver.query, 0, "a")
    driver.clock.now += 50
    assert driver.pool.sweep() == 1
    assert (await driver.state("a")).step_count == 1
    with pytest.raises(UnknownEpisode):
        await driver.state("b")


async def test_an_episode_in_use_is_not_idle(driver):
    await driver.reset()
    async with driver.in_flight(driver.query, 0) as step:
        driver.clock.now += 1000
        assert driver.pool.sweep() == 0
    assert (await step).observation.step_count == 1


@pytest.mark.parametrize("fault", [NotReady("no worker"), RuntimeError("a bug")])
async def test_a_server_fault_counts_no_step(driver, fault):
    await driver.reset()
    await driver.step(driver.describe, 0)
    driver.sql.fault = fault
    with pytest.raises(type(fault)):
        await driver.step(driver.query, 1)
    driver.sql.fault = None
    assert (await driver.step(driver.query, 1)).observation.budget_remaining == 3


async def test_a_cancelled_step_can_be_sent_again(driver):
    await driver.reset()
    async with driver.in_flight(driver.query, 0) as step:
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
    assert (await driver.step(driver.query, 0)).observation.step_count == 1


# -- resets of an id in the pool, and replay


async def test_two_resets_at_once_make_one_episode(driver):
    driver.sql.open.clear()
    both = [asyncio.create_task(driver.reset(actions=[driver.query])) for _ in range(2)]
    await asyncio.sleep(0.01)
    driver.sql.open.set()
    replies = await asyncio.gather(*both)
    assert replies[0] == replies[1]
    assert len(driver.pool) == 1


@pytest.mark.parametrize("last", ["QUERY: SELECT 1", "ANSWER: 1"])
async def test_actions_past_the_end_are_a_conflict(driver, last):
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
async def test_random_requests_keep_one_history_whose_replies_are_replays(driver, seed):
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
            reply = await call
            assert reply.observation.action_history == history[:shown]
            replay = await driver.reset("other", actions=history[:shown], step_budget=8)
            without_id = {"exclude": {"episode_id"}}
            assert reply.model_dump(**without_id) == replay.model_dump(**without_id)
            await driver.pool.close("other")
        assert (await driver.state()).action_history == history
    assert len(history) > 3


# -- bytes and owners

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


async def reset(pool: EpisodePool, caller: Caller, episode_id: str | None = "e") -> ResetResult:
    return await pool.reset(ResetRequest(episode_id=episode_id, seed=1), caller)


async def step(pool: EpisodePool, caller: Caller, action: str = "QUERY: SELECT 1") -> StepResult:
    return await pool.step(StepRequest(episode_id="e", action=action), caller)


# -- bytes


async def test_all_episodes_together_are_bounded_and_finished_ones_give_way(small):
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
    assert (await small.step(LONG, 2, "37")).observation.step_count == 3


async def test_of_its_replies_an_episode_holds_the_last_alone(driver):
    await driver.reset()
    await driver.step(driver.query)
    held = driver.pool.store.held_bytes
    await driver.step(driver.query)  # shows the same
    assert driver.pool.store.held_bytes - held == memory_of(driver.query)


# -- owners


async def test_an_agent_has_its_places_and_takes_none_of_the_others(bank, question):
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


async def test_an_agent_holds_its_share_of_the_bytes(small):
    """For it, its own finished episodes are removed, and nobody else's."""
    pool = small.pool
    for caller, names in ((TRAINER, "abc"), (ONE, "d")):
        for name in names:
            await reset(pool, caller, name)
            await pool.step(StepRequest(episode_id=name, action="ANSWER: x"), caller)

    async def fill() -> None:
        for number in range(30):
            await pool.reset(ResetRequest(episode_id=f"{number}", seed=1, actions=[LONG] * 3), ONE)

    with pytest.raises(CapacityReached, match="key agent-1 hold"):
        await fill()
    assert pool.store.held_bytes <= MIB / 2
    for name in "abc":
        assert await pool.step(StepRequest(episode_id=name, action="ANSWER: x", step=0), TRAINER)
    with pytest.raises(UnknownEpisode):
        await pool.state("d", ONE)
    await pool.reset(ResetRequest(episode_id="e", seed=1, actions=[LONG] * 3), TWO)


async def test_an_agents_finished_episodes_do_not_evict_those_of_others(bank, question):
    driver = Driver(bank, question, capacity=9, finished_capacity=4)
    for caller, names in ((TRAINER, "ab"), (ONE, "cdefgh")):
        for name in names:
            await reset(driver.pool, caller, name)
            await driver.pool.step(StepRequest(episode_id=name, action="ANSWER: x"), caller)
    kept = {name for held in driver.pool.store.owners.values() for name in held.finished}
    assert kept == {*"ab", *"gh"}
