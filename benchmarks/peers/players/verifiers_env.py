"""verifiers' `MultiTurnEnv` with SQLEnv's environment in its process, and a client without a model.

SQL runs in one jailed worker. `generate` plays and scores all rollouts at once, as evaluations and
trainers call it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import verifiers as vf
from datasets import Dataset
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage

from benchmarks.peers.player import Play, Workload
from env_server.environment import SQLEnvironment
from env_server.questions import QuestionBank
from env_server.sql import drive_async
from env_server.sql.pool import SqlPool


class Hosted(vf.MultiTurnEnv):  # type: ignore[misc]
    """Episodes of SQLEnv as rollouts."""

    def __init__(self, bank: QuestionBank, pool: SqlPool, **options: Any) -> None:
        super().__init__(**options)
        self._bank, self._pool = bank, pool

    async def setup_state(self, state: Any) -> Any:
        """Start a rollout's episode."""
        actions = state["info"]["actions"]
        state["episode"] = episode = SQLEnvironment(self._bank, step_budget=len(actions))
        jobs = episode.reset_jobs(question_id=state["info"]["question_id"])
        observation = (await drive_async(jobs, self._pool.run)).observation
        state["prompt"] = [{"role": "user", "content": observation.question}]
        state["earned"] = 0.0
        return state

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        """Take the step that the last message names."""
        jobs = state["episode"].step_jobs(messages[-1].content)
        reply = await drive_async(jobs, self._pool.run)
        state["earned"] += reply.reward or 0.0
        text = reply.observation.error or reply.observation.result
        response = [{"role": "user", "content": text}]
        if reply.done:
            state["final_env_response"] = response
        return response


class Scripted(Client):  # type: ignore[misc]
    """A model's client that returns the rollout's next action."""

    async def get_response(self, *_: Any, state: Any, **__: Any) -> Response:
        """Return the next action as an assistant's message."""
        action = state["info"]["actions"][len(state["trajectory"])]
        message = ResponseMessage(content=action, finish_reason="stop", is_truncated=False)
        return Response(id="", created=0, model="scripted", message=message)

    async def _unused(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    setup_client = to_native_tool = to_native_prompt = get_native_response = _unused
    raise_from_native_response = from_native_response = _unused

    async def close(self) -> None:
        """Do nothing."""


async def earned(state: Any) -> float:
    """Return the rewards of the episode."""
    return float(state["earned"])


def quiet(*_: object) -> None:
    """Show no progress."""


@asynccontextmanager
async def in_process(workload: Workload, url: str) -> AsyncIterator[Play]:
    """Play in this process; there is no server."""
    bank = QuestionBank.load(workload.data)
    inputs = [
        {"prompt": [], "example_id": number, "info": episode._asdict()}
        for number, episode in enumerate(workload.episodes)
    ]
    async with SqlPool(1, bank.limits) as pool:
        rubric = vf.Rubric(funcs=[earned])
        env = Hosted(bank, pool, dataset=Dataset.from_list(inputs), rubric=rubric)
        client = Scripted(None)

        async def wave() -> float:
            found = await env.generate(
                inputs, client, "scripted", on_start=quiet, on_progress=quiet
            )
            return float(sum(one["reward"] for one in found["outputs"]))

        yield wave
