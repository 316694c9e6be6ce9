"""Play 64 episodes at once with this project's client: python examples/async_client.py [URL ...]

Needs running servers: with several URLs they share the episodes. The client sends the steps of one
moment as one request. Put a model where `act` is.
"""

import asyncio
import sys
from collections import Counter

from sqlenv import Outcome, SQLEnvClient, SQLObservation, StepResult, one_line_errors

EPISODES = 64


async def act(seen: SQLObservation) -> str:
    """Choose the next action by what an agent may see."""
    table = seen.tables[0]
    actions = (f"DESCRIBE: {table}", f'QUERY: SELECT count(*) FROM "{table}"', "ANSWER: 42")
    return actions[seen.step_count]


async def play(client: SQLEnvClient, seed: int) -> tuple[Outcome | None, float]:
    first = await client.reset(seed=seed)
    reply: StepResult = first
    reward = 0.0
    while not reply.done:
        reply = await client.step(first.episode_id, await act(reply.observation))
        reward += reply.reward or 0.0
    return reply.info.outcome, reward


async def main(*urls: str) -> None:
    async with SQLEnvClient(urls or "http://127.0.0.1:8000") as client:
        played = await asyncio.gather(*(play(client, seed) for seed in range(EPISODES)))
    print(f"{EPISODES} episodes:", dict(Counter(str(outcome) for outcome, _ in played)))
    print(f"mean reward: {sum(reward for _, reward in played) / EPISODES:.3f}")


if __name__ == "__main__":
    with one_line_errors():
        asyncio.run(main(*sys.argv[1:]))
