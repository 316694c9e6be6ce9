"""SQLEnv's server: by its public client, and by its trainer's loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.worker import Answer, Episode, read_workload, waves
from shared.client import SQLEnvClient


@asynccontextmanager
async def client(path: str, url: str) -> AsyncIterator[Answer]:
    """Play with the public client, which sends the steps of one moment together."""
    workload = read_workload(path)
    async with SQLEnvClient(url) as server:

        async def play(episode: Episode) -> float:
            budget = len(episode.actions)
            reset = await server.reset(question_id=episode.question_id, step_budget=budget)
            steps = [await server.step(reset.episode_id, action) for action in episode.actions]
            return sum(step.reward or 0.0 for step in steps)

        yield waves(play, workload.episodes)


@asynccontextmanager
async def loop(path: str, url: str) -> AsyncIterator[Answer]:
    """Play with the trainer's rollout loop and a policy that only reads the script."""
    workload = read_workload(path)
    from trainer.config.settings import GRPOConfig
    from trainer.rollout.loop import open_client, play_scripted

    scripts = {one.question_id: one.actions for one in workload.episodes}
    budget = len(workload.episodes[0].actions)
    config = GRPOConfig(server_urls=[url], step_budget=budget)
    with open_client(config) as server:

        async def wave(_: object) -> float:
            rows = await asyncio.to_thread(play_scripted, scripts, None, config, server)
            return sum(row.reward or 0.0 for row in rows)

        yield wave
