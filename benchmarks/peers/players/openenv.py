"""OpenEnv's client: a connection per episode that is played at once, kept from wave to wave."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.peers.worker import Answer, Episode, read_workload, waves
from shared.agents.openenv import SQLEnv


class Client(SQLEnv):
    """SQLEnv's typed client of OpenEnv's, also for replies of OpenEnv's own server.

    That one has `reward` and `done` beside the observation only, and `metadata` if there is any.
    """

    def _parse_result(self, payload: dict[str, Any]) -> Any:
        observation = payload["observation"] | {key: payload[key] for key in ("reward", "done")}
        observation.pop("metadata", None)
        whole = {"metadata": {}} | payload | {"observation": observation}
        return super()._parse_result(whole)


@asynccontextmanager
async def client(path: str, url: str) -> AsyncIterator[Answer]:
    """Play with a typed `EnvClient` on OpenEnv's server."""
    workload = read_workload(path)
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(Client(base_url=url)) for _ in workload.episodes
        ]

        async def play(connection: Client, episode: Episode) -> float:
            budget = len(episode.actions)
            await connection.reset(question_id=episode.question_id, step_budget=budget)
            steps = [await connection.step(action) for action in episode.actions]
            return sum(step.reward or 0.0 for step in steps)

        yield waves(play, connections, workload.episodes)
