"""Ownership: nobody guesses the id of another's episode, or uses it with another key."""

import re
from itertools import combinations
from uuid import UUID

from env_server.conformance.check import Registry
from env_server.conformance.episodes import OTHER, QUERY
from env_server.conformance.wire import Wire, equal, expect
from shared.errors import UnknownEpisode

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
        reply = (await wire.send("POST", "/reset", json={}, headers=headers)).ok("a reset")
        ids.append(str(reply.body["episode_id"]))
        await wire.end(ids[-1])
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
    other = wire.second
    episode = await wire.start(step_budget=5)
    await wire.steps(episode, [QUERY])
    name = episode.episode_id
    for reply, request in [
        (await other.step(name, QUERY, 1), "a step"),
        (await other.step(name, QUERY, 0), "a repeat"),
        (await other.send("GET", f"/state?episode_id={name}"), "the state"),
        (await other.end(name), "closing"),
    ]:
        reply.refused(UnknownEpisode, f"{request} of an episode with another key")
    own = (await other.post("/reset", {"episode_id": name, "seed": 3})).ok("the id's reuse")
    equal(own.seen["step_count"], 0, "the steps of an episode under another key's id")
    (await other.end(name)).ok("closing it")
    seen = (await wire.step(episode, OTHER, 1)).ok("the owner's next step").seen
    equal(seen["step_count"], 2, "the count of the owner's steps")
