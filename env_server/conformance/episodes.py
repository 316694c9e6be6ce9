"""Shapes and play; what makes a step safe to repeat and an episode safe to lose; determinism."""

import asyncio
from typing import Any

from pydantic import BaseModel

from env_server.conformance.check import Registry
from env_server.conformance.wire import Reply, Wire, WireEpisode, brief, expect, fresh_id
from shared.models import Outcome, ResetResult, SQLState, StepResult
from shared.sqltext import quote_identifier

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


def shaped(model: type[BaseModel], reply: Reply) -> Any:
    """Return the reply as `model`; at any depth it must have exactly its fields."""
    result = model.model_validate(reply.body)
    same = result.model_dump(mode="json") == reply.body
    expect(same, f"a reply has other fields or types than a {model.__name__}: {reply.text}")
    return result


def refused(reply: Reply, status: int, code: str, request: str) -> dict[str, Any]:
    """Return the reply's error, which must have this status and code."""
    same = reply.status == status and reply.error.get("code") == code
    expect(same, f"{request} must be {status} {code}, not {reply.status} {reply.text}")
    return reply.error


@plays("health, ready and metadata answer")
async def _server(wire: Wire) -> str:
    for path in ("/health", "/ready"):
        wire.ok(await wire.send("GET", path), f"GET {path}")
    metadata = await wire.metadata()
    expect(metadata.digest and metadata.sqlite_version, "no digest or SQLite version in metadata")
    server = f"{metadata.name} {metadata.version}, SQLite {metadata.sqlite_version}"
    return f"{server}, digest {metadata.digest[:12]}"


@plays("a reset shows a question and the tables' names, and nothing else")
async def _reset(wire: Wire) -> None:
    body = {"episode_id": fresh_id(), "seed": 1, "step_budget": 3}
    result = shaped(ResetResult, wire.ok(await wire.post("/reset", body), "a reset"))
    seen = result.observation
    listed = seen.schema_info.startswith("Tables: ")
    expect(listed, f"schema_info must start with 'Tables: a, b', not {brief(seen.schema_info)!r}")
    expect(seen.question and seen.tables, "a reset must show a question and tables")
    progress = (seen.step_count, seen.budget_remaining, seen.action_history)
    expect(
        (*progress, seen.result, seen.error, result.done) == (0, 3, [], "", None, False),
        "a reset must start with no step taken, the whole budget, and no result",
    )
    expect(result.reward is None, "a reset pays no reward")
    expect("\n" not in seen.schema_info, "a reset must only name tables; DESCRIBE shows columns")
    await wire.send("DELETE", f"/episodes/{result.episode_id}")


@plays("DESCRIBE, SAMPLE, QUERY and ANSWER work as documented")
async def _actions(wire: Wire) -> None:
    episode = await wire.start(step_budget=6)
    table = episode.tables[0]
    failing = ["QUERY: SELECT nothing_there", "DESCRIBE: no_such_one"]
    actions = [f"DESCRIBE: {table}", f"SAMPLE: {table}", QUERY, *failing, WRONG]
    results = [shaped(StepResult, reply) for reply in await wire.steps(episode, actions)]
    described, sampled, queried, failed, missing, last = (result.observation for result in results)
    noted = described.schema_info.count("\n") == 1
    expect(described.result and noted, "DESCRIBE must show the table and add it to schema_info")
    expect(sampled.result and sampled.error is None, "SAMPLE must show rows")
    expect(queried.result == "one\n1", f"SELECT 1 AS one shows {queried.result!r}, not 'one\\n1'")
    expect(failed.error and not failed.result, "a failed query must have an error and no result")
    expect(results[3].info.error_code == "sql_error", "an unknown column is a sql_error")
    no_table = missing.error and results[4].info.error_code == "no_such_table"
    expect(no_table, "an unknown table is a no_such_table")
    counted = last.step_count == 6 and last.budget_remaining == 0
    expect(counted, "steps must be counted and taken from the budget")
    expect(last.action_history == actions, "the history must hold each action's canonical text")
    ended = results[5].done and results[5].info.outcome == Outcome.WRONG
    expect(ended, "a wrong ANSWER must end the episode")
    expect(not any(result.done for result in results[:5]), "only ANSWER ends an episode so early")
    for result in results:
        difference = sum(result.ledger.step.values()) - (result.reward or 0)
        expect(abs(difference) < 1e-9, "the ledger's parts must sum to the reward")
    difference = results[-1].ledger.total - sum(result.reward or 0 for result in results)
    expect(abs(difference) < 1e-9, "the ledger's total must be the sum of the rewards")


@plays("the budget ends an episode")
async def _budget(wire: Wire) -> None:
    episode = await wire.start(step_budget=2)
    first, last = [shaped(StepResult, reply) for reply in await wire.steps(episode, [QUERY, QUERY])]
    expect(not first.done and last.done, "a budget of 2 must end the episode at its second step")
    outcome = last.info.outcome
    expect(outcome == Outcome.BUDGET, f"its outcome must be budget, not {outcome}")
    refused(await wire.step(episode, QUERY, 2), 409, "conflict", "a step after the end")


@plays("state and close")
async def _state(wire: Wire) -> None:
    episode = await wire.start()
    await wire.steps(episode, [QUERY])
    state = shaped(SQLState, await wire.state(episode))
    same = (state.step_count, state.action_history) == (1, [QUERY])
    expect(same, "the state must be that of the episode")
    closed = wire.ok(await wire.send("DELETE", f"/episodes/{episode.episode_id}"), "closing")
    expect(shaped(SQLState, closed).outcome == Outcome.ABANDONED, "a closed episode is abandoned")
    reply = await wire.send("GET", f"/state?episode_id={episode.episode_id}")
    refused(reply, 404, "unknown_episode", "the state of a closed episode")


# -- idempotent steps


@steps("a repeated step gives the same bytes and is not counted again")
async def _repeat(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    first = wire.ok(await wire.step(episode, QUERY, 0), "a step")
    again = await wire.step(episode, QUERY, 0)
    expect(first.content == again.content, "a repeated step must give the same bytes")
    later = wire.ok(await wire.step(episode, OTHER, 1), "the next step")
    left = later.seen["budget_remaining"]
    expect(left == 3, "a repeated step must not be taken from the budget")
    oldest = await wire.step(episode, QUERY, 0)
    expect(first.content == oldest.content, "an older step's repeat must give the same bytes")
    as_object = {"action_type": "QUERY", "argument": "SELECT 2 AS two"}
    same = (await wire.step(episode, as_object, 1)).content == later.content
    expect(same, "text and object are the same action")


@steps("concurrent repeats give the same bytes and are counted once")
async def _in_flight(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    replies = await asyncio.gather(*(wire.step(episode, SLOW, 0) for _ in range(5)))
    contents = {reply.content for reply in replies}
    expect(len(contents) == 1, "repeats of a step in flight must all give the same bytes")
    seen = wire.ok(replies[0], "a step").seen
    expect(seen["step_count"] == 1, "repeats of a step in flight must be counted once")


@steps("repeats are answered after the end too")
async def _after_the_end(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    first, last = await wire.steps(episode, [QUERY, WRONG])
    repeat = await wire.step(episode, WRONG, 1)
    expect(repeat.content == last.content, "the last step's repeat must give the same bytes")
    repeat = await wire.step(episode, QUERY, 0)
    expect(repeat.content == first.content, "so must that of a step before the end")


@steps("another action for an answered step is a conflict, a step ahead is behind")
async def _conflict(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    await wire.steps(episode, [QUERY])
    reply = await wire.step(episode, OTHER, 0)
    refused(reply, 409, "conflict", "another action for an answered step")
    reply = await wire.step(episode, OTHER, 3)
    refused(reply, 409, "behind", "a step that the server has not reached")
    seen = wire.ok(await wire.step(episode, OTHER, 1), "the next step").seen
    expect(seen["step_count"] == 2, "refused steps must not be taken")


# -- replay


async def history(wire: Wire) -> tuple[WireEpisode, list[str], list[Reply]]:
    """Play several kinds of action, also failing ones. Returns the episode, which has not ended."""
    episode = await wire.start(step_budget=8)
    table = episode.tables[-1]
    actions = [f"DESCRIBE: {table}", QUERY, "QUERY: SELECT random()", f"SAMPLE: {table}", QUERY]
    return episode, actions, await wire.steps(episode, actions)


def same(reset: Reply, step: Reply, request: str) -> None:
    """Compare a reset with actions to the reply to the last of them."""
    body = Wire.ok(reset, request).body
    fields = {key: value for key, value in body.items() if key != "episode_id"}
    expect(fields == step.body, f"{request} must give the last step's reply; it differs")


@replays("an episode rebuilt from its actions is the same, under any id and at any length")
async def _rebuild(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    for length in (1, 3, len(actions)):
        other = fresh_id()
        body = episode.options | {"episode_id": other, "actions": actions[:length]}
        same(await wire.post("/reset", body), replies[length - 1], f"a replay of {length} actions")
        step = wire.ok(await wire.step(other, WRONG, length), "a step after a replay")
        expect(step.body["done"], "a rebuilt episode must continue")


@replays("a lost episode comes back under its own id")
async def _lost(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    await wire.end(episode)
    refused(await wire.step(episode, QUERY, 5), 404, "unknown_episode", "a step of a lost episode")
    body = {"episode_id": episode.episode_id, **episode.options, "actions": actions}
    body["digest"] = (await wire.metadata()).digest
    same(await wire.post("/reset", body), replies[-1], "a replay under the old id")
    repeat = await wire.step(episode, actions[1], 1)
    expect(repeat.content == replies[1].content, "its old steps can be repeated")


@replays("a known id is kept or moved forward; another history is a conflict")
async def _known(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    body = {"episode_id": episode.episode_id, **episode.options}
    shorter = await wire.post("/reset", body | {"actions": actions[:2]})
    same(shorter, replies[1], "a reset with a prefix of the history")
    longer = await wire.post("/reset", body | {"actions": [*actions, OTHER]})
    taken = wire.ok(longer, "a reset with one action more").seen["step_count"]
    expect(taken == 6, "a reset with more actions must play the rest")
    reply = await wire.post("/reset", body | {"actions": [OTHER]})
    refused(reply, 409, "conflict", "a reset with another history")
    reply = await wire.post("/reset", body | {"step_budget": 3})
    refused(reply, 409, "conflict", "a reset with another budget")


@replays("a replay for another server is refused")
async def _digest(wire: Wire) -> None:
    body = {"episode_id": fresh_id(), "seed": 1, "digest": "0" * 64}
    reply = await wire.post("/reset", body)
    refused(reply, 409, "digest_mismatch", "a reset with another server's digest")


# -- determinism: the same question, options and actions give the same bytes in any situation


async def play(wire: Wire, seed: int) -> list[bytes]:
    """Play a seed's episode and return the bytes of every reply, the reset's without the id."""
    episode = await wire.start(seed=seed, step_budget=12)
    table = episode.tables[seed % len(episode.tables)]
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
    reset = episode.reset.model_dump_json(exclude={"episode_id"}).encode()
    return [reset, *(reply.content for reply in await wire.steps(episode, actions))]


def compare(first: list[bytes], second: list[bytes], situation: str) -> None:
    for number, (left, right) in enumerate(zip(first, second, strict=True)):
        place = "the reset" if number == 0 else f"step {number - 1}"
        expect(left == right, f"{situation}: {place} was answered with different bytes")


@determinism("a seed picks the same question")
async def _seed(wire: Wire) -> None:
    for seed in range(5):
        first, second = await wire.start(seed=seed), await wire.start(seed=seed)
        expect(first.question_id == second.question_id, f"seed {seed} picked two questions")


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
    load = [asyncio.create_task(wire.step(episode, LOAD, 0)) for episode in busy]
    compare(alone[1], await play(wire, 1), "played under load")
    results = {reply.seen["result"] for reply in await asyncio.gather(*load)}
    expect(len(results) == 1, "equal queries had different results")
    return f"{sum(map(len, alone))} replies compared"
