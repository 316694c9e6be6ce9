"""Play an episode with OpenEnv's client: python examples/openenv_agent.py [URL]

Needs a running server, and 'pip install openenv' (or openenv-core 0.3) here.
"""

import asyncio
import os
import sys

from openenv.core.generic_client import GenericEnvClient

from sqlenv import SQLEnv

KEY = os.environ.get("SQLENV_API_KEY")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}


async def play(url: str) -> str:
    """Return the id of an episode that is left unfinished, as if the connection was lost."""
    async with SQLEnv(base_url=url, headers=HEADERS) as env:
        reply = await env.reset(difficulty="easy", seed=7)
        print("question:", reply.observation.question)
        table = reply.observation.tables[0]
        reply = await env.step(f"DESCRIBE: {table}")
        print(reply.observation.result, "- reward:", reply.reward)
        state = await env.state()
        await env._ws.close()  # without OpenEnv's goodbye, which would abandon the episode
    return state.episode_id


def finish(url: str, episode_id: str) -> None:
    """Continue the episode without any of this project's classes, and without await."""
    with GenericEnvClient(base_url=url, headers=HEADERS).sync() as env:
        reply = env.reset(episode_id=episode_id, resume=True)
        print("resumed after", reply.observation["step_count"], "step")
        reply = env.step({"action_type": "ANSWER", "argument": "42"})
        print("done:", reply.done, "outcome:", env.state()["outcome"])


if __name__ == "__main__":
    server = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    try:
        finish(server, asyncio.run(play(server)))
    except ConnectionError as error:
        remedy = "start a server with 'python -m env_server', and set SQLENV_API_KEY if it has keys"
        sys.exit(f"error: {error}; {remedy}")
