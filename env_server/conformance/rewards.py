"""Rewards that are withheld until the end: no reply before the last one hints at the answer."""

from typing import Any

from env_server.conformance.check import Registry
from env_server.conformance.episodes import OTHER, QUERY, WRONG, refused, shaped
from env_server.conformance.wire import Reply, Skipped, Wire, brief, expect, fresh_id
from shared.models import StepResult

rewards = Registry("rewards")

GUESSES = (0, 1, 2, 7, 1000)


def hidden(reply: Reply, request: str) -> None:
    """Check that a reply shows no reward and no ledger."""
    body = reply.body
    seen = (body["reward"], body["observation"]["reward"], body["info"]["ledger"])
    expect(seen == (None, None, None), f"{request} must show no reward and no ledger, not {seen}")


@rewards("rewards 'end': nothing before the last reply, whose reward is the episode's total")
async def _withheld(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    replies = await wire.steps(episode, [f"DESCRIBE: {episode.tables[0]}", QUERY, OTHER, WRONG])
    expect(episode.reset.reward is None, "a reset pays no reward")
    expect(episode.reset.info.ledger is None, "a reset must show no ledger")
    for number, reply in enumerate(replies[:-1]):
        hidden(reply, f"step {number}")
    last = shaped(StepResult, replies[-1])
    total = last.ledger.total
    same = last.reward == last.observation.reward == total
    expect(same, f"the last reply's reward must be the total, {total}, not {last.reward}")


@rewards("rewards 'end': right and wrong guesses get equal replies")
async def _guesses(wire: Wire) -> None:
    replies: list[Any] = []
    for guess in GUESSES:
        episode = await wire.start(step_budget=5, rewards="end")
        table = episode.tables[0].replace('"', '""')
        query = f'QUERY: SELECT {guess} FROM "{table}" LIMIT 1'
        reply = wire.ok(await wire.step(episode, query, 0), "a guess").body
        expect(reply["observation"]["error"] is None, f"{query} must work: {brief(reply)}")
        reply["observation"] |= {"result": "", "action_history": []}
        replies.append(reply)
    same = all(reply == replies[0] for reply in replies)
    expect(same, "replies to different guesses must differ in nothing but the guess")


@rewards("rewards 'end': a replay is the same, and shows rewards at the end only")
async def _replayed(wire: Wire) -> None:
    episode = await wire.start(step_budget=5, rewards="end")
    actions = [QUERY, OTHER, WRONG]
    replies = await wire.steps(episode, actions)
    for length in (2, 3):
        body = episode.options | {"episode_id": fresh_id(), "rewards": "end"}
        reply = wire.ok(await wire.post("/reset", body | {"actions": actions[:length]}), "a replay")
        reply.body.pop("episode_id")
        expect(reply.body == replies[length - 1].body, "a replay must give the step's reply")
        await wire.send("DELETE", f"/episodes/{body['episode_id']}")
    body = episode.options | {"episode_id": episode.episode_id, "rewards": "step"}
    reply = await wire.post("/reset", body)
    refused(reply, 409, "conflict", "a reset of the episode with other rewards")


@rewards("an agent's key gets no reward before the end")
async def _agent(wire: Wire) -> None:
    if wire.second is None:
        raise Skipped("needs an agent's key: --second-api-key")
    reply = await wire.second.post("/reset", {"episode_id": fresh_id(), "rewards": "step"})
    refused(reply, 403, "forbidden", "a reset with rewards 'step' by an agent's key")
    episode = await wire.second.start(step_budget=5)
    hidden((await wire.second.steps(episode, [QUERY]))[0], "a step of an agent's")
