"""Ownership: nobody guesses the id of another's episode, or uses it with another key."""

import re
from itertools import combinations
from uuid import UUID

from env_server.conformance.check import Registry
from env_server.conformance.episodes import OTHER, QUERY, refused
from env_server.conformance.wire import Skipped, Wire, expect

ownership = Registry("ownership")

IDS = 8
PROPOSED = "x-by-a-gateway"
PREFIX = re.compile(rf"^{PROPOSED}[:._-]?")  # one separator: the random part may begin with others
RANDOM_BITS = 122  # of a UUID of version 4
LEAST_CHANGED_BITS = 25  # of the ids' text: of two random ones, 50 and more differ


async def new_ids(wire: Wire, **headers: str) -> list[str]:
    """Return ids that the server makes, of episodes that are closed at once."""
    ids = []
    for _ in range(IDS):
        reply = wire.ok(await wire.send("POST", "/reset", json={}, headers=headers), "a reset")
        ids.append(str(reply.body["episode_id"]))
        await wire.send("DELETE", f"/episodes/{ids[-1]}")
    return ids


def random_bits(text: str) -> int:
    """Return how many random bits a text may hold: those of a UUID, else 6 per character."""
    if re.fullmatch(r"[0-9a-f-]{36}", text):
        return RANDOM_BITS if UUID(text).version == 4 else 0
    return 6 * len(text)


@ownership("the server's ids can't be guessed, whatever a header proposes")
async def _ids(wire: Wire) -> None:
    for ids in (await new_ids(wire), await new_ids(wire, **{"X-Episode-Id": PROPOSED})):
        expect(len(set(ids)) == IDS, f"every episode must get an id of its own, not {ids[:2]}")
        for one, other in combinations(ids, 2):
            tail, other_tail = (PREFIX.sub("", name) for name in (one, other))
            enough = random_bits(tail) >= RANDOM_BITS and len(tail) == len(other_tail)
            expect(enough, f"an id needs {RANDOM_BITS} random bits, unlike {one!r}")
            pairs = zip(tail.encode(), other_tail.encode(), strict=True)
            changed = sum((a ^ b).bit_count() for a, b in pairs)
            expect(changed >= LEAST_CHANGED_BITS, f"ids must not resemble: {one!r} and {other!r}")


@ownership("an episode belongs to the key that began it")
async def _keys(wire: Wire) -> None:
    if wire.second is None:
        raise Skipped("needs another key: --second-api-key")
    episode = await wire.start(step_budget=5)
    await wire.steps(episode, [QUERY])
    name, other = episode.episode_id, wire.second
    for reply, request in [
        (await other.step(name, QUERY, 1), "a step"),
        (await other.step(name, QUERY, 0), "a repeat"),
        (await other.send("GET", "/state", params={"episode_id": name}), "the state"),
        (await other.send("DELETE", f"/episodes/{name}"), "closing"),
    ]:
        refused(reply, 404, "unknown_episode", f"{request} of an episode with another key")
    own = other.ok(await other.post("/reset", {"episode_id": name, "seed": 3}), "the id's reuse")
    expect(own.seen["step_count"] == 0, "an id is the key's own: its reuse starts an episode")
    other.ok(await other.send("DELETE", f"/episodes/{name}"), "closing it")
    seen = wire.ok(await wire.step(episode, OTHER, 1), "the owner's next step").seen
    expect(seen["step_count"] == 2, "what other keys do must not change the episode")
