"""SQLEnv's server: by its public client, by its trainer's loop, and by one request per step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from benchmarks.peers.player import Episode, Play, read_workload, waves
from shared.client import SQLEnvClient


@asynccontextmanager
async def client(path: str, url: str) -> AsyncIterator[Play]:
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
async def plain(path: str, url: str) -> AsyncIterator[Play]:
    """Play with one httpx request per reset and per step, as a plain `rollout_func` does."""
    workload = read_workload(path)
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False) as server:

        async def post(path: str, body: dict[str, object]) -> httpx.Response:
            return (await server.post(path, json=body)).raise_for_status()

        async def play(episode: Episode) -> float:
            fields = {"question_id": episode.question_id, "step_budget": len(episode.actions)}
            reset = (await post("/reset", fields)).json()
            rewards = []
            for action in episode.actions:
                body = {"episode_id": reset["episode_id"], "action": action}
                rewards.append((await post("/step", body)).json()["reward"] or 0.0)
            return sum(rewards)

        yield waves(play, workload.episodes)


@asynccontextmanager
async def loop(path: str, url: str) -> AsyncIterator[Play]:
    """Play with the trainer's rollout loop and a policy that only reads the script."""
    workload = read_workload(path)
    from trainer.config import GRPOConfig
    from trainer.rollout.loop import open_client, play_scripted

    scripts = {one.question_id: one.actions for one in workload.episodes}
    budget = len(workload.episodes[0].actions)
    config = GRPOConfig(server_urls=[url], step_budget=budget)
    with open_client(config) as server:

        async def wave(_: object) -> float:
            rows = await asyncio.to_thread(play_scripted, scripts, None, config, server)
            return sum(row.reward or 0.0 for row in rows)

        yield wave
