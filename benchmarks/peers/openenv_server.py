"""OpenEnv's server with SQLEnv's environment in it, in OpenEnv's environment.

    python -m benchmarks.peers.openenv_server --host HOST --port PORT --data DIR --sessions N

SQL runs in one jailed worker, as on SQLEnv's server, and the event loop is uvloop as there. Its
steps are OpenEnv's asynchronous ones, so that no thread is between a socket and its episode.
"""

import argparse
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from env_server.episode import Episode, Options
from env_server.questions import QuestionBank
from env_server.sql import drive_async
from env_server.sql.pool import SqlPool
from shared.actions import ActionType, SQLAction, render_action
from shared.models import ResetRequest, StepResult


class HostedAction(Action):  # type: ignore[misc]
    """An action as OpenEnv's clients send it."""

    action_type: ActionType
    argument: str


class HostedObservation(Observation):  # type: ignore[misc]
    """`SQLObservation`, whose `done` and `reward` are OpenEnv's own fields."""

    question: str
    schema_info: str
    result: str
    error: str | None
    step_count: int
    budget_remaining: int
    action_history: list[str]


def shown(reply: StepResult) -> HostedObservation:
    return HostedObservation(**reply.observation.model_dump())


class Hosted(Environment):  # type: ignore[misc]
    """One session's episodes."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, bank: QuestionBank, pool: SqlPool) -> None:
        super().__init__()
        self._bank, self._pool = bank, pool
        self._episode: Episode | None = None

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, **fields: Any
    ) -> HostedObservation:
        request = ResetRequest(seed=seed, episode_id=episode_id, **fields)
        self._episode = Episode(self._bank, Options.of(request, self._bank, episode_id or ""))
        await drive_async(self._episode.start_jobs(), self._pool.run)
        return shown(self._episode.reply())

    async def step_async(self, action: HostedAction, **_: Any) -> HostedObservation:
        taken = SQLAction(action_type=action.action_type, argument=action.argument)
        if self._episode is None:
            raise RuntimeError("no episode yet: reset first")
        jobs = self._episode.step_jobs(taken, render_action(taken))
        await drive_async(jobs, self._pool.run)
        return shown(self._episode.reply())

    def reset(self, **_: Any) -> HostedObservation:
        raise RuntimeError("call reset_async")

    def step(self, action: HostedAction, **_: Any) -> HostedObservation:
        raise RuntimeError("call step_async")

    @property
    def state(self) -> State:
        return State(step_count=len(self._episode.actions) if self._episode else 0)


def ready() -> dict[str, str]:
    """Answer `ServerProcess`, which waits for it."""
    return {}


async def serve(host: str, port: int, data: Path, sessions: int) -> None:
    bank = QuestionBank.load(data)
    async with SqlPool(1, bank.limits) as pool:
        app = create_app(
            lambda: Hosted(bank, pool),
            HostedAction,
            HostedObservation,
            env_name="sqlenv",
            max_concurrent_envs=sessions,
        )
        app.add_api_route("/ready", ready)
        # `ServerProcess` reads the address from this line
        print(f"SQLEnv serves http://{host}:{port}", flush=True)
        config = uvicorn.Config(app, host, port, log_level="warning")
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sessions", type=int)
    uvloop.run(serve(**vars(parser.parse_args())))
