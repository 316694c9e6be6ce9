"""Bytes: what an action, an episode and a reply may hold is bounded."""

from env_server.conformance.check import Registry
from env_server.conformance.episodes import QUERY, refused
from env_server.conformance.wire import Reply, Wire, expect, fresh_id

sizes = Registry("bytes")

LONG = "DESCRIBE: " + "x" * 15_000
MOST_BODY_BYTES = 1_500_000
MOST_STEPS = 80  # LONG that often is 1.2 MB


@sizes("an argument is bounded in bytes, however few characters it has")
async def _argument(wire: Wire) -> None:
    episode = await wire.start(step_budget=5)
    reply = await wire.step(episode, "ANSWER: " + "\N{GRINNING FACE}" * 5_001, 0)
    refused(reply, 400, "invalid_action", "an action of 5,001 characters with 20,004 bytes")


@sizes("an episode's actions are bounded, and one beyond the bound is not counted")
async def _episode(wire: Wire) -> str:
    episode = await wire.start(step_budget=100)
    number, reply = 0, await wire.step(episode, LONG, 0)
    while reply.status == 200 and number < MOST_STEPS:
        number += 1
        reply = await wire.step(episode, LONG, number)
    _too_large(reply, f"step {number} of {len(LONG):,} bytes each")
    query = {"episode_id": episode.episode_id}
    state = wire.ok(await wire.send("GET", "/state", params=query), "GET /state")
    expect(state.body["step_count"] == number, "the refused step must not be counted")
    wire.ok(await wire.step(episode, QUERY, number), "a shorter action instead")
    body = episode.options | {"episode_id": fresh_id(), "actions": [LONG] * (number + 1)}
    _too_large(await wire.post("/reset", body), "a reset with all these actions")
    return f"at most {number * len(LONG):,} bytes"


@sizes("the reply to a batch is bounded, however often an item is repeated")
async def _batch(wire: Wire) -> str:
    # a request of 7.7 KB that repeated one answered step got 239 MB
    episode = await wire.start(step_budget=100)
    for number in range(15):
        wire.ok(await wire.step(episode, LONG, number), f"step {number}")
    step = {"episode_id": episode.episode_id, "action": LONG, "step": 14}
    steps = [step] * (MOST_BODY_BYTES // len(LONG))
    reply = wire.ok(await wire.post("/step_batch", {"steps": steps}), "a batch of repeats")
    results = reply.body["results"]
    expect("error" not in results[0], f"the first item must be answered, not {reply.text}")
    left_out = [result["error"] for result in results if "error" in result]
    codes = {(error["code"], error["retryable"]) for error in left_out}
    size = f"{len(reply.content):,} bytes for a request of {len(steps) * len(LONG):,}"
    expected = (
        f"{size}; the items left out must have retryable reply_too_large, not {codes or None}"
    )
    expect(codes == {("reply_too_large", True)}, expected)
    return size


def _too_large(reply: Reply, request: str) -> None:
    error = refused(reply, 413, "episode_too_large", request)
    expect(any(char.isdigit() for char in error["message"]), "the error must state the limit")
