"""Shapes and play; then what makes a step safe to repeat and an episode safe to lose: idempotency
and replay."""

import asyncio
from typing import Any

from pydantic import BaseModel

from env_server.conformance.check import Registry
from env_server.conformance.wire import Episode, Reply, Wire, brief, expect, fresh_id, tables_of
from shared.models import Outcome, ResetResult, SQLState, StepResult

plays = Registry("play")
steps = Registry("steps")
replays = Registry("replay")

QUERY = "QUERY: SELECT 1 AS one"
OTHER = "QUERY: SELECT 2 AS two"
WRONG = "ANSWER: surely not this, 31337"


def shaped(model: type[BaseModel], reply: Reply) -> Any:
    """The reply as `model`, whose fields it has and no others, at any depth."""
    result = model.model_validate(reply.body)
    expect(
        result.model_dump(mode="json") == reply.body,
        f"a reply has other fields or types than a {model.__name__}: {brief(reply.content.decode(errors='replace'))}",
    )
    return result


def refused(reply: Reply, status: int, code: str, what: str) -> dict[str, Any]:
    """The reply's error, which must have this status and code."""
    expect(
        reply.status == status and reply.error.get("code") == code,
        f"{what} must be {status} {code}, not {reply.status} {brief(reply.content.decode(errors='replace'))}",
    )
    return reply.error


@plays("health, ready and metadata answer")
async def _server(wire: Wire) -> str:
    for path in ("/health", "/ready"):
        wire.ok(await wire.send("GET", path), f"GET {path}")
    metadata = await wire.metadata()
    expect(
        metadata.digest and metadata.sqlite_version,
        "the metadata name no digest or no SQLite version",
    )
    return f"{metadata.name} {metadata.version}, SQLite {metadata.sqlite_version}, digest {metadata.digest[:12]}"


@plays("a reset shows a question and the tables' names, and nothing else")
async def _reset(wire: Wire) -> None:
    reply = wire.ok(
        await wire.post("/reset", {"episode_id": fresh_id(), "seed": 1, "step_budget": 3}),
        "a reset",
    )
    result = shaped(ResetResult, reply)
    seen = result.observation
    expect(
        seen.question and tables_of(seen.schema_info), "a reset must show a question and the tables"
    )
    expect(
        (
            seen.step_count,
            seen.budget_remaining,
            seen.action_history,
            seen.result,
            seen.error,
            result.done,
        )
        == (0, 3, [], "", None, False),
        "a reset must begin with no step taken, the whole budget, and no result",
    )
    expect(result.reward is None, "a reset pays no reward")
    expect(
        "\n" not in seen.schema_info, "a reset must name tables alone; columns come with DESCRIBE"
    )
    await wire.send("DELETE", f"/episodes/{result.episode_id}")


@plays("DESCRIBE, SAMPLE, QUERY and ANSWER do what they say")
async def _actions(wire: Wire) -> None:
    episode = await wire.begin(step_budget=6)
    table = tables_of(episode.reset.observation.schema_info)[0]
    actions = [
        f"DESCRIBE: {table}",
        f"SAMPLE: {table}",
        QUERY,
        "QUERY: SELECT nothing_there",
        "DESCRIBE: no_such_one",
    ]
    results = [shaped(StepResult, reply) for reply in await wire.steps(episode, [*actions, WRONG])]
    described, sampled, queried, failed, missing, last = (result.observation for result in results)
    expect(
        described.result and described.schema_info.count("\n") == 1,
        "DESCRIBE must show the table and note it",
    )
    expect(sampled.result and sampled.error is None, "SAMPLE must show rows")
    expect(
        queried.result == "one\n1",
        f"SELECT 1 AS one must be shown as 'one\\n1', not {queried.result!r}",
    )
    expect(
        failed.error and not failed.result, "a query that fails must have an error and no result"
    )
    expect(results[3].info.error_code == "sql_error", "a column that is not there is a sql_error")
    expect(
        missing.error and results[4].info.error_code == "no_such_table",
        "a wrong table name is a no_such_table",
    )
    expect(
        last.step_count == 6 and last.budget_remaining == 0,
        "steps must be counted and taken from the budget",
    )
    expect(
        last.action_history == [*actions, WRONG],
        "the history must hold the canonical text of every action",
    )
    expect(
        results[5].done and results[5].info.outcome == Outcome.WRONG, "ANSWER must end the episode"
    )
    expect(
        not any(result.done for result in results[:5]),
        "nothing but ANSWER ends an episode within its budget",
    )
    for result in results:
        ledger = result.info.ledger
        expect(
            abs(sum(ledger.step.values()) - (result.reward or 0)) < 1e-9,
            "the ledger's parts must sum to the reward",
        )
    total = sum(result.reward or 0 for result in results)
    expect(
        abs(results[-1].info.ledger.total - total) < 1e-9,
        "the ledger's total must be the sum of the rewards",
    )
    await wire.end(episode)


@plays("the budget ends an episode")
async def _budget(wire: Wire) -> None:
    episode = await wire.begin(step_budget=2)
    first, last = [shaped(StepResult, reply) for reply in await wire.steps(episode, [QUERY, QUERY])]
    expect(
        not first.done and last.done, "an episode with a budget of 2 must end with its second step"
    )
    expect(
        last.info.outcome == Outcome.BUDGET, f"its outcome must be budget, not {last.info.outcome}"
    )
    refused(await wire.step(episode, QUERY, 2), 409, "conflict", "a step after the end")
    await wire.end(episode)


@plays("state and close")
async def _state(wire: Wire) -> None:
    episode = await wire.begin()
    await wire.steps(episode, [QUERY])
    query = {"episode_id": episode.episode_id}
    state = shaped(SQLState, wire.ok(await wire.send("GET", "/state", params=query), "GET /state"))
    expect(
        (state.step_count, state.action_history) == (1, [QUERY]),
        "the state must be that of the episode",
    )
    closed = wire.ok(await wire.send("DELETE", f"/episodes/{episode.episode_id}"), "closing")
    expect(shaped(SQLState, closed).outcome == Outcome.ABANDONED, "a closed episode is abandoned")
    refused(
        await wire.send("GET", "/state", params=query),
        404,
        "unknown_episode",
        "the state of a closed episode",
    )


# -- idempotent steps
# ----------------------------------------------------------------------------------------------


@steps("the same step again gives the same bytes and charges nothing")
async def _repeat(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    first = wire.ok(await wire.step(episode, QUERY, 0), "a step")
    again = await wire.step(episode, QUERY, 0)
    expect(first.content == again.content, "the repeat of a step must be the same bytes")
    later = wire.ok(await wire.step(episode, OTHER, 1), "the next step")
    expect(
        later.body["observation"]["budget_remaining"] == 3,
        "a repeat must not be charged to the budget",
    )
    oldest = await wire.step(episode, QUERY, 0)
    expect(first.content == oldest.content, "an older step's repeat must be the same bytes too")
    as_object = {"action_type": "QUERY", "argument": "SELECT 2 AS two"}
    expect(
        (await wire.step(episode, as_object, 1)).content == later.content,
        "text and object are the same action",
    )
    await wire.end(episode)


@steps("repeats at the same time give the same bytes and charge once")
async def _in_flight(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    slow = "QUERY: WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000) SELECT max(i) FROM n"
    replies = await asyncio.gather(*(wire.step(episode, slow, 0) for _ in range(5)))
    expect(
        len({reply.content for reply in replies}) == 1,
        "repeats of a step in flight must all be the same bytes",
    )
    seen = wire.ok(replies[0], "a step").body["observation"]
    expect(seen["step_count"] == 1, "repeats of a step in flight must be charged once")
    await wire.end(episode)


@steps("repeats are answered after the end too")
async def _after_the_end(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    first, last = await wire.steps(episode, [QUERY, WRONG])
    expect(
        (await wire.step(episode, WRONG, 1)).content == last.content,
        "the last step's repeat must be the same bytes",
    )
    expect(
        (await wire.step(episode, QUERY, 0)).content == first.content,
        "so must that of a step before the end",
    )
    await wire.end(episode)


@steps("another action for an answered step is a conflict, a step ahead is behind")
async def _conflict(wire: Wire) -> None:
    episode = await wire.begin(step_budget=5)
    await wire.steps(episode, [QUERY])
    refused(
        await wire.step(episode, OTHER, 0), 409, "conflict", "another action for an answered step"
    )
    refused(
        await wire.step(episode, OTHER, 3), 409, "behind", "a step that the server has not reached"
    )
    seen = wire.ok(await wire.step(episode, OTHER, 1), "the next step").body["observation"]
    expect(seen["step_count"] == 2, "refused steps must not be taken")
    await wire.end(episode)


# -- replay
# --------------------------------------------------------------------------------------------------------


async def history(wire: Wire) -> tuple[Episode, list[str], list[Reply]]:
    """An episode of several kinds of action, errors among them, with its replies. Not ended."""
    episode = await wire.begin(step_budget=8)
    table = tables_of(episode.reset.observation.schema_info)[-1]
    actions = [f"DESCRIBE: {table}", QUERY, "QUERY: SELECT random()", f"SAMPLE: {table}", QUERY]
    return episode, actions, await wire.steps(episode, actions)


def same(reset: Reply, step: Reply, what: str) -> None:
    """A reset with actions must be answered as the last of them was."""
    expect(reset.status == 200 and isinstance(reset.body, dict), f"{what} gave HTTP {reset.status}")
    fields = {key: value for key, value in reset.body.items() if key != "episode_id"}
    expect(fields == step.body, f"{what} must give the last step's reply; it differs")


@replays("an episode rebuilt from its actions is the same, under any id and at any length")
async def _rebuild(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    common = {"question_id": episode.question_id, "step_budget": episode.step_budget}
    for length in (1, 3, len(actions)):
        other = fresh_id()
        body = common | {"episode_id": other, "actions": actions[:length]}
        same(await wire.post("/reset", body), replies[length - 1], f"a replay of {length} actions")
        step = await wire.step(other, WRONG, length)
        expect(wire.ok(step, "a step after a replay").body["done"], "a rebuilt episode must go on")
    await wire.end(episode)


@replays("a lost episode comes back under its own id")
async def _lost(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    await wire.end(episode)
    refused(await wire.step(episode, QUERY, 5), 404, "unknown_episode", "a step of a lost episode")
    body = {
        "episode_id": episode.episode_id,
        "question_id": episode.question_id,
        "step_budget": episode.step_budget,
        "actions": actions,
        "digest": (await wire.metadata()).digest,
    }
    same(await wire.post("/reset", body), replies[-1], "a replay under the old id")
    expect(
        (await wire.step(episode, actions[1], 1)).content == replies[1].content,
        "its old steps can be repeated",
    )
    await wire.end(episode)


@replays("a held id is kept or moved forward; another history is a conflict")
async def _held(wire: Wire) -> None:
    episode, actions, replies = await history(wire)
    body = {
        "episode_id": episode.episode_id,
        "question_id": episode.question_id,
        "step_budget": episode.step_budget,
    }
    same(
        await wire.post("/reset", body | {"actions": actions[:2]}),
        replies[1],
        "a reset with a prefix of the history",
    )
    further = wire.ok(
        await wire.post("/reset", body | {"actions": [*actions, OTHER]}),
        "a reset with one action more",
    )
    expect(
        further.body["observation"]["step_count"] == 6,
        "a reset with more actions must play the rest",
    )
    refused(
        await wire.post("/reset", body | {"actions": [OTHER]}),
        409,
        "conflict",
        "a reset with another history",
    )
    refused(
        await wire.post("/reset", body | {"step_budget": 3}),
        409,
        "conflict",
        "a reset with another budget",
    )
    await wire.end(episode)


@replays("a replay for another server is refused")
async def _digest(wire: Wire) -> None:
    body = {"episode_id": fresh_id(), "seed": 1, "digest": "0" * 64}
    refused(
        await wire.post("/reset", body),
        409,
        "digest_mismatch",
        "a reset with another server's digest",
    )
