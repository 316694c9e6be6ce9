"""Determinism: the same question, options and actions give the same bytes in any situation."""

import asyncio

from env_server.conformance.check import Registry
from env_server.conformance.episodes import ENDLESS, NUMBERS
from env_server.conformance.wire import Wire, expect
from shared.sqltext import quote_identifier

determinism = Registry("determinism")

EPISODES = 6  # played again, concurrently
BUSY = 4  # episodes that load the server meanwhile
LOAD = NUMBERS.format(" LIMIT 300000") + " SELECT count(*), max(i) FROM n"


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
