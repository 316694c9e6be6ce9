"""Shapes and play; what makes a step safe to repeat and an episode safe to lose; determinism."""

import asyncio

from shared.errors import Behind, Conflict, DigestMismatch, UnknownEpisode
from shared.models import Outcome, ResetResult, ServerMetadata, SQLState, StepResult
from shared.sqltext import quote_identifier
from tests.conformance.check import Registry
from tests.conformance.wire import Reply, Wire, equal, expect, fresh_id, options_of

plays = Registry("play")
steps = Registry("steps")
replays = Registry("replay")
determinism = Registry("determinism")

NUMBERS = "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n{})"
QUERY = "QUERY: SELECT 1 AS one"
OTHER = "QUERY: SELECT 2 AS two"
ENDLESS = NUMBERS.format("") + " SELECT max(i) FROM n"
SLOW = NUMBERS.format(" LIMIT 200000") + " SELECT max(i) FROM n"
EPISODES = 6  # played again for determinism, concurrently
BUSY = 4  # episodes that load the server meanwhile
LOAD = NUMBERS.format(" LIMIT 300000") + " SELECT count(*), max(i) FROM n"
WRONG = "ANSWER: surely not this, 31337"


@plays("health, ready and metadata answer")
async def _server(wire: Wire) -> str:
    for path in ("/health", "/ready"):
        await wire.get(path)
    metadata = ServerMetadata.model_validate((await wire.get("/metadata")).body)
    expect(metadata.digest and metadata.sqlite_version, "no digest or SQLite version in metadata")
    server = f"{metadata.name} {metadata.version}, SQLite {metadata.sqlite_version}"
    return f"{server}, digest {metadata.digest[:12]}"


@plays("a reset shows a question and the tables' names, and nothing else")
async def _reset(wire: Wire) -> None:
    body = {"episode_id": fresh_id(), "seed": 1, "step_budget": 3}
    result = (await wire.post("/reset", body)).ok("a reset").shaped(ResetResult)
    seen = result.observation
    expect(seen.schema_info.startswith("Tables: "), "schema_info must start with 'Tables: a, b'")
    expect("\n" not in seen.schema_info, "a reset must only name tables; DESCRIBE shows columns")
    expect(seen.question and seen.tables, "a reset must show a question and tables")
    progress = (seen.step_count, seen.budget_remaining, seen.action_history)
    outcome = (seen.result, seen.error, result.done, result.reward)
    equal((*progress, *outcome), (0, 3, [], "", None, False, None), "what a reset with 3 steps has")
    await wire.end(result.episode_id)


@plays("DESCRIBE, SAMPLE, QUERY and ANSWER work as documented")
async def _actions(wire: Wire) -> None:
    episode = await wire.start(step_budget=6)
    table = episode.observation.tables[0]
    failing = ["QUERY: SELECT nothing_there", "DESCRIBE: no_such_one"]
    actions = [f"DESCRIBE: {table}", f"SAMPLE: {table}", QUERY, *failing, WRONG]
    results = [reply.shaped(StepResult) for reply in await wire.steps(episode, actions)]
    described, sampled, queried, failed, _, last = (result.observation for result in results)
    noted = described.schema_info.count("\n") == 1
    expect(described.result and noted, "DESCRIBE must show the table and add it to schema_info")
    expect(sampled.result, "SAMPLE must show rows")
    equal(queried.result, "one\n1", "the result of SELECT 1 AS one")
    equal(failed.result, "", "the result of a failed query")
    for result, code in zip(
        results, (None, None, None, "sql_error", "no_such_table", None), strict=True
    ):
        equal(result.info.error_code, code, f"the error_code of {result.observation.error!r}")
        equal(result.observation.error is not None, code is not None, f"an error beside {code}")
        equal(result.done, result is results[-1], "done, before ANSWER and after")
        equal(round(sum(result.ledger.step.values()), 9), round(result.reward, 9), "a reward")
    equal((last.step_count, last.budget_remaining), (6, 0), "the steps taken and left")
    equal(last.action_history, actions, "the history, of each action's canonical text,")
    equal(results[-1].info.outcome, Outcome.WRONG, "the outcome of a wrong ANSWER")
    total = sum(result.reward for result in results)
    equal(round(results[-1].ledger.total, 9), round(total, 9), "the ledger's total")


@plays("the budget ends an episode")
async def _budget(wire: Wire) -> None:
    episode = await wire.start(step_budget=2)
    first, last = [reply.shaped(StepResult) for reply in await wire.steps(episode, [QUERY, QUERY])]
    equal((first.done, last.done), (False, True), "done, of the steps of a budget of 2,")
    equal(last.info.outcome, Outcome.BUDGET, "the outcome")
    (await wire.step(episode, QUERY, 2)).refused(Conflict, "a step after the end")


@plays("state and close")
async def _state(wire: Wire) -> None:
    episode = await wire.start()
    await wire.steps(episode, [QUERY])
    path = f"/state?episode_id={episode.episode_id}"
    state = (await wire.get(path)).shaped(SQLState)
    equal((state.step_count, state.action_history), (1, [QUERY]), "the state's actions")
    closed = (await wire.end(episode.episode_id)).ok("closing").shaped(SQLState)
    equal(closed.outcome, Outcome.ABANDONED, "the outcome of a closed episode")
    (await wire.send("GET", path)).refused(UnknownEpisode, "the state of a closed episode")


# -- idempotent steps


def same_bytes(first: Reply, second: Reply, what: str) -> None:
    expect(first.content == second.content, f"{what} must get the same bytes")


@steps("a repeated step gives the same bytes and is not counted again")
async def _repeat(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    first = (await wire.step(episode, QUERY)).ok("a step")
    same_bytes(first, await wire.step(episode, QUERY), "a repeated step")
    later = (await wire.step(episode, OTHER, 1)).ok("the next step")
    equal(later.seen["budget_remaining"], 3, "the budget after two steps and a repeat")
    same_bytes(first, await wire.step(episode, QUERY), "a repeat of an older step")
    as_object = {"action_type": "QUERY", "argument": "SELECT 2 AS two"}
    same_bytes(later, await wire.step(episode, as_object, 1), "the same action as an object")


@steps("concurrent repeats give the same bytes and are counted once")
async def _in_flight(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    first, *others = await asyncio.gather(*(wire.step(episode, SLOW) for _ in range(5)))
    for other in others:
        same_bytes(first, other, "repeats of a step in flight")
    equal(first.ok("a step").seen["step_count"], 1, "the count of a step sent five times")


@steps("repeats are answered after the end too")
async def _after_the_end(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    first, last = await wire.steps(episode, [QUERY, WRONG])
    same_bytes(last, await wire.step(episode, WRONG, 1), "a repeat of the last step")
    same_bytes(first, await wire.step(episode, QUERY), "a repeat of a step before the end")


@steps("another action for an answered step is a conflict, a step ahead is behind")
async def _conflict(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    await wire.steps(episode, [QUERY])
    (await wire.step(episode, OTHER)).refused(Conflict, "another action for an answered step")
    (await wire.step(episode, OTHER, 3)).refused(Behind, "a step that the server has not reached")
    seen = (await wire.step(episode, OTHER, 1)).ok("the next step").seen
    equal(seen["step_count"], 2, "the count of steps, without refused ones,")


# -- replay


async def history(wire: Wire) -> tuple[ResetResult, list[str], list[Reply]]:
    """Play several kinds of action, also failing ones. Returns the episode, which has not ended."""
    episode = await wire.start(step_budget=8)
    table = episode.observation.tables[-1]
    actions = [f"DESCRIBE: {table}", QUERY, "QUERY: SELECT random()", f"SAMPLE: {table}", QUERY]
    return episode, actions, await wire.steps(episode, actions)


def same(reset: Reply, step: Reply, request: str) -> None:
    """Compare a reset with actions to the reply to the last of them."""
    body = reset.ok(request).body
    equal(body, {**step.body, "episode_id": body["episode_id"]}, f"the reply to {request}")


@replays("an episode rebuilt from its actions is the same, under any id and at any length")
async def _rebuild(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    for length in (1, 3, len(actions)):
        other = fresh_id()
        body = options_of(episode) | {"episode_id": other, "actions": actions[:length]}
        same(await wire.post("/reset", body), replies[length - 1], f"a replay of {length} actions")
        step = (await wire.step(other, WRONG, length)).ok("a step after a replay")
        expect(step.body["done"], "a rebuilt episode must continue")


@replays("a lost episode comes back under its own id")
async def _lost(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    await wire.end(episode.episode_id)
    (await wire.step(episode, QUERY, 5)).refused(UnknownEpisode, "a step of a lost episode")
    body = {"episode_id": episode.episode_id, **options_of(episode), "actions": actions}
    body["digest"] = (await wire.get("/metadata")).body["digest"]
    same(await wire.post("/reset", body), replies[-1], "a replay under the old id")
    same_bytes(replies[1], await wire.step(episode, actions[1], 1), "a repeat of its old step")


@replays("a known id is kept or moved forward; another history is a conflict")
async def _known(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    body = {"episode_id": episode.episode_id, **options_of(episode)}
    shorter = await wire.post("/reset", body | {"actions": actions[:2]})
    same(shorter, replies[1], "a reset with a prefix of the history")
    longer = await wire.post("/reset", body | {"actions": [*actions, OTHER]})
    taken = longer.ok("a reset with one action more").seen["step_count"]
    equal(taken, 6, "the steps after a reset with one action more")
    for other, what in (({"actions": [OTHER]}, "history"), ({"step_budget": 3}, "budget")):
        (await wire.post("/reset", body | other)).refused(Conflict, f"a reset with another {what}")


@replays("a replay for another server is refused")
async def _digest(wire: Wire) -> None:
    reply = await wire.post("/reset", {"episode_id": fresh_id(), "seed": 1, "digest": "0" * 64})
    reply.refused(DigestMismatch, "a reset with another server's digest")


# -- determinism: the same question, options and actions give the same bytes in any situation


async def play(wire: Wire, seed: int) -> list[bytes]:
    """Play a seed's episode and return the bytes of every reply, the reset's without the id."""
    episode = await wire.start(seed=seed, step_budget=12)
    tables = episode.observation.tables
    table = tables[seed % len(tables)]
    quoted = quote_identifier(table)
    actions = [
        f"DESCRIBE: {table}",
        f"SAMPLE: {table}",
        f"QUERY: SELECT * FROM {quoted}",
        f"QUERY: SELECT count(*) AS n, * FROM {quoted} GROUP BY 2 ORDER BY 1 DESC",
        f"QUERY: SELECT * FROM {quoted} ORDER BY 1",
        f"QUERY: SELECT DISTINCT a.* FROM {quoted} a, {quoted} b",
        "QUERY: SELECT datetime('now'), random()",
        f"QUERY: SELECT a.*, b.* FROM {quoted} a, {quoted} b",
        ENDLESS if seed == 1 else "QUERY: SELECT 1; SELECT 2",
        f"QUERY: SELECT * FROM {quoted} ORDER BY 1 DESC LIMIT 3",
        "ANSWER: [1, 2, 3]",
    ]
    reset = episode.model_dump_json(exclude={"episode_id"}).encode()
    return [reset, *(reply.content for reply in await wire.steps(episode, actions))]


def compare(first: list[bytes], second: list[bytes], situation: str) -> None:
    for number, (left, right) in enumerate(zip(first, second, strict=True)):
        place = "the reset" if number == 0 else f"step {number - 1}"
        expect(left == right, f"{situation}: {place} was answered with different bytes")


@determinism("a seed picks the same question")
async def _seed(wire: Wire) -> None:
    for seed in range(5):
        first, second = await wire.start(seed=seed), await wire.start(seed=seed)
        equal(second.info.question_id, first.info.question_id, f"the question of seed {seed}")


@determinism("a replayed episode gives the same bytes: concurrently, in any order, under load")
async def _again(wire: Wire) -> str:
    alone = [await play(wire, seed) for seed in range(EPISODES)]
    compare(alone[0], await play(wire, 0), "played again")
    for seed in reversed(range(0, EPISODES, 2)):
        compare(alone[seed], await play(wire, seed), "played in another order")
    concurrent = await asyncio.gather(*(play(wire, seed) for seed in range(EPISODES)))
    for first, second in zip(alone, concurrent, strict=True):
        compare(first, second, "played concurrently")
    busy = [await wire.start(seed=seed) for seed in range(BUSY)]
    load = [asyncio.create_task(wire.step(episode, LOAD)) for episode in busy]
    compare(alone[1], await play(wire, 1), "played under load")
    results = {reply.seen["result"] for reply in await asyncio.gather(*load)}
    expect(len(results) == 1, "equal queries had different results")
    return f"{sum(map(len, alone))} replies compared"
