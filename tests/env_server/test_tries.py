"""An agent's tries: which ends count, ids that have ended, and the limit, whatever the order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from env_server import tries
from env_server.questions import QuestionBank
from env_server.store import Caller
from shared.dataset import Question
from shared.errors import Conflict, Forbidden, NotReady
from shared.models import Outcome, ResetRequest, StepRequest, StepResult
from tests.env_server.pool_driver import Driver
from tests.env_server.test_open_questions import ASKED, write_open

pytestmark = pytest.mark.anyio

ONE, TWO = Caller("agent-1", is_agent=True), Caller("agent-2", is_agent=True)
TRAINER, OPERATOR = Caller("trainer"), Caller("operator", is_operator=True)
LOOK, WRONG, RIGHT = "DESCRIBE: customers", "ANSWER: 4", "ANSWER: 5"  # of shop-1


class Agents(Driver):
    """A pool of which agents, and others, ask for shop-1."""

    async def begin(
        self, *actions: str, caller: Caller = ONE, name: str | None = "e", **fields: Any
    ) -> StepResult:
        wanted = {"episode_id": name, "question_id": "shop-1", **fields, "actions": actions}
        return await self.pool.reset(ResetRequest.model_validate(wanted), caller)

    async def act(self, action: str, name: str = "e", caller: Caller = ONE) -> StepResult:
        return await self.pool.step(StepRequest(episode_id=name, action=action), caller)

    def attempt(self, name: str = "e") -> int:
        return self.pool.store.get(name, OPERATOR).attempt

    def counts(self, caller: Caller = ONE) -> dict[str, tuple[int, int, bool]]:
        kept = [one for one in self.pool.store.tries if one.key == caller.owner]
        return {
            name: (one.tries, one.right, one.first_right)
            for name, one in (kept[0].questions if kept else {}).items()
        }


@asynccontextmanager
async def pooled(bank: QuestionBank, question: Question, **settings: Any) -> AsyncIterator[Agents]:
    agents = Agents(bank, question, **{"lease_s": 60, "step_budget": 5, **settings})
    yield agents
    agents.sql.runner.close()


@pytest.fixture
async def agents(bank: QuestionBank, question: Question) -> AsyncIterator[Agents]:
    async with pooled(bank, question, finished_capacity=2) as found:
        yield found


# -- ids that have ended


async def deleted(agents: Agents) -> None:
    await agents.pool.close("e", ONE)


async def evicted(agents: Agents) -> None:
    for name in "abc":
        await agents.begin(WRONG, name=name, question_id="zoo-2")


async def expired(agents: Agents) -> None:
    agents.clock.now += 61
    agents.pool.sweep()


async def kept(agents: Agents) -> None:
    assert agents.pool.store.find("e", ONE) is not None


ENDS = pytest.mark.parametrize("ended", [deleted, evicted, expired, kept])
End = Callable[[Agents], Awaitable[None]]


@ENDS
async def test_an_agent_cant_start_an_ended_id_again(agents, ended):
    await agents.begin()
    for action in (LOOK, WRONG):
        await agents.act(action)
    await ended(agents)
    others: list[tuple[list[str], dict[str, Any]]] = [
        ([], {}),
        ([LOOK], {}),
        ([LOOK, RIGHT], {}),
        ([RIGHT], {}),
        ([LOOK, WRONG], {"question_id": "zoo-2"}),
        ([LOOK, WRONG], {"step_budget": 4}),
        ([LOOK, WRONG], {"answer_form": "sql"}),
        ([LOOK, WRONG], {"explain": []}),
    ]
    for actions, options in others:
        with pytest.raises(Conflict, match="choose another id"):
            await agents.begin(*actions, **options)
    assert agents.counts()["shop-1"] == (1, 0, False)
    for caller in (TWO, TRAINER):  # ids are each key's own
        assert (await agents.begin(caller=caller)).observation.step_count == 0


@ENDS
async def test_an_ended_episode_is_rebuilt_from_its_history_and_counts_once(agents, ended):
    await agents.begin(WRONG, name="before")
    await agents.begin(LOOK)
    last = await agents.act(RIGHT)
    for _ in range(2):
        await ended(agents)
        again = await agents.begin(LOOK, RIGHT)
        assert again.model_dump(exclude={"episode_id"}) == last.model_dump()
        assert agents.attempt() == 2
    assert agents.counts()["shop-1"] == (2, 1, False)


@pytest.mark.parametrize("ended", [deleted, expired])
async def test_an_unfinished_episode_continues_from_its_whole_history(agents, ended):
    """A client that went to another server meanwhile knows more actions than this one."""
    await agents.begin(LOOK, "SAMPLE: customers")
    await ended(agents)
    with pytest.raises(Conflict, match="all of its actions"):
        await agents.begin(LOOK)
    seen = await agents.begin(LOOK, "SAMPLE: customers", "QUERY: SELECT 1")
    assert seen.observation.step_count == 3
    assert (await agents.act(RIGHT)).info.outcome == Outcome.CORRECT
    assert agents.counts()["shop-1"] == (1, 1, True)


async def test_a_reset_that_fails_changes_nothing(agents):
    agents.sql.fault = NotReady("no worker")
    with pytest.raises(NotReady):
        await agents.begin("QUERY: SELECT 1", WRONG)
    agents.sql.fault = None
    assert agents.counts() == {}
    await agents.begin("QUERY: SELECT 2", WRONG)  # no client saw the other
    await agents.pool.close("e", ONE)
    agents.sql.fault = NotReady("no worker")
    with pytest.raises(NotReady):
        await agents.begin("QUERY: SELECT 2", WRONG)
    agents.sql.fault = None
    with pytest.raises(Conflict, match="has ended"):
        await agents.begin(RIGHT)
    assert agents.counts()["shop-1"] == (1, 0, False)


async def test_the_oldest_ids_are_forgotten_and_tries_are_not(agents, monkeypatch):
    monkeypatch.setattr(tries, "MAX_ENDED", 2)
    for name in "abc":
        await agents.begin(WRONG, name=name)
        await agents.pool.close(name, ONE)
    with pytest.raises(Conflict, match="has ended"):
        await agents.begin(name="b")
    await agents.begin(RIGHT, name="a")
    assert agents.counts()["shop-1"] == (4, 1, False)


async def test_other_callers_start_ids_again_as_ever(agents):
    for caller in (Caller(), TRAINER, OPERATOR):
        await agents.begin(RIGHT, caller=caller)
        assert agents.attempt() == 0
        assert (await agents.begin(caller=caller)).observation.step_count == 0, "its first reply"
        await agents.pool.close("e", caller)
        await agents.begin(WRONG, caller=caller)
        await agents.pool.close("e", caller)
    assert agents.pool.store.tries == []


# -- what counts


async def test_only_judged_answers_count_by_key_and_question(agents):
    await agents.begin(*["QUERY: SELECT 1"] * 5, name="budget")
    await agents.begin(LOOK, name="left")
    await agents.pool.close("left", ONE)
    assert agents.counts() == {}
    await agents.begin(RIGHT, name="a")
    await agents.begin(name="b")
    await agents.act(WRONG, "b", OPERATOR)  # the agent's all the same
    assert agents.attempt("b") == 2
    await agents.begin("ANSWER: SELECT 1", name="c", answer_form="sql")
    await agents.begin(RIGHT, name="a", caller=TWO)
    assert agents.counts() == {"shop-1": (3, 1, True)}
    assert agents.counts(TWO) == {"shop-1": (1, 1, True)}


# -- the limit


async def test_parallel_episodes_reserve_their_tries(bank, question):
    async with pooled(bank, question, agent_tries=2) as agents:
        await agents.begin(name="a")
        await agents.begin(name="b")
        with pytest.raises(Forbidden, match=r"shop-1.*agent-1.*2 unfinished.*SQLENV_AGENT_TRIES"):
            await agents.begin(name="c")
        await agents.begin(name="c", question_id="zoo-2")
        await agents.begin(name="c", caller=TWO)
        for name in "abc":
            await agents.begin(WRONG, caller=TRAINER, name=name)
        await agents.pool.close("a", ONE)  # gives its try back
        assert (await agents.act(WRONG, "b")).done
        assert (await agents.begin(RIGHT, name="d")).done
        for actions in ((), (RIGHT,)):
            with pytest.raises(Forbidden, match=r"made 2 tries.*at most 2"):
                await agents.begin(*actions, name="f")
        with pytest.raises(Forbidden):  # its id may continue, but has no try
            await agents.begin(name="a")
        await agents.pool.close("b", ONE)
        assert (await agents.begin(WRONG, name="b")).done, "a rebuild needs none"
        assert agents.counts() == {"shop-1": (2, 1, False)}


@pytest.mark.parametrize("limit", [1, 3])
async def test_concurrent_resets_cant_pass_the_limit(bank, question, limit):
    async with pooled(bank, question, agent_tries=limit) as agents:
        guesses = ["QUERY: SELECT 1", WRONG]
        agents.sql.open.clear()
        resets = [asyncio.create_task(agents.begin(*guesses, name=f"{n}")) for n in range(8)]
        await asyncio.sleep(0.01)
        agents.sql.open.set()
        found = await asyncio.gather(*resets, return_exceptions=True)
        assert sum(isinstance(one, Forbidden) for one in found) == 8 - limit
        assert agents.counts() == {"shop-1": (limit, 0, False)}


async def test_a_rebuild_under_way_reserves_nothing(bank, question):
    async with pooled(bank, question, agent_tries=2) as agents:
        history = ["QUERY: SELECT 1", WRONG]
        await agents.begin(*history)
        await agents.pool.close("e", ONE)
        agents.sql.open.clear()
        rebuild = asyncio.create_task(agents.begin(*history))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(agents.begin(RIGHT, name="f"))
        await asyncio.sleep(0.01)
        agents.sql.open.set()
        assert [(await one).info.outcome for one in (rebuild, second)] == ["wrong", "correct"]
        assert agents.counts() == {"shop-1": (2, 1, False)}


async def test_open_questions_have_no_limit(tiny_data, tmp_path, question):
    (tmp_path / "databases").symlink_to(tiny_data / "databases")
    open_bank = QuestionBank.load(write_open(tmp_path, ASKED), follow_links=True)
    async with pooled(open_bank, question, agent_tries=1) as agents:
        for name in "abc":
            await agents.begin(name=name, question_id="open-1")
        assert (await agents.act(WRONG, "a")).info.outcome == Outcome.ANSWERED
        assert (agents.counts(), agents.attempt("a")) == ({}, 0)
