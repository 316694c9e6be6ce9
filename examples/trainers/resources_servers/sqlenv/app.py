"""A NeMo Gym resources server whose tools are SQLEnv's four actions, played on a SQLEnv server.

Needs a running SQLEnv server, and tasks that `tasks.py` drew from it; docs/other-trainers.md has
the commands. A task whose episode is lost with its server is masked: its reward is not valid.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request
from fastapi.responses import PlainTextResponse
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.failure_kinds import SESSION_LOST
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import PrivateAttr
from tasks import ARGUMENTS

from sqlenv import ActionType, Outcome, SQLAction, SQLEnvClient, SQLEnvError, StepResult, step_text


@dataclass
class Episode:
    """An episode, its latest reply, and the error that lost it."""

    id: str
    reply: StepResult
    error: SQLEnvError | None = None


class SQLEnvConfig(BaseResourcesServerConfig):
    url: str


class SeedRequest(BaseSeedSessionRequest):
    reset: dict[str, Any]  # of a task: the arguments of `SQLEnvClient.reset`


class VerifyResponse(BaseVerifyResponse):
    question_id: str
    correct: bool
    steps: int


class SQLEnvServer(SimpleResourcesServer):
    """Plays one episode per session. All share a client, which batches their steps."""

    config: SQLEnvConfig
    _client: SQLEnvClient = PrivateAttr()
    _episodes: dict[str, Episode] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.lifespan_context = self._connected
        for kind, name in ARGUMENTS.items():
            call = self._tool(kind, name)
            app.post(f"/{kind.lower()}", response_class=PlainTextResponse)(call)
        return app

    @asynccontextmanager
    async def _connected(self, _: FastAPI) -> AsyncIterator[None]:
        async with SQLEnvClient(self.config.url) as self._client:
            await self._client.metadata()  # an error names a server that does not answer
            yield

    async def seed_session(self, request: Request, body: SeedRequest) -> BaseSeedSessionResponse:
        reply = await self._client.reset(**body.reset)
        self._episodes[request.session[SESSION_ID_KEY]] = Episode(reply.episode_id, reply)
        return BaseSeedSessionResponse()

    def _tool(self, kind: ActionType, name: str) -> Callable[..., Awaitable[str]]:
        async def call(request: Request, arguments: Annotated[dict[str, Any], Body()]) -> str:
            episode = self._episodes[request.session[SESSION_ID_KEY]]
            if episode.reply.done or episode.error is not None:
                return "The episode is over."
            text = str(arguments.get(name, "")).strip()
            try:
                action = SQLAction(action_type=kind, argument=text)
            except ValueError:
                return f"Error: expected the argument {name!r} of 1 to 20,000 bytes"
            try:
                episode.reply = await self._client.step(episode.id, action)
            except SQLEnvError as error:
                episode.error = error
                return "The episode is over."
            return step_text(episode.reply.observation)

        return call

    async def verify(self, request: Request, body: BaseVerifyRequest) -> VerifyResponse:
        """Return the server's total reward (with an agent's key: 1 for a right answer, else 0), and
        close an episode without an answer."""
        episode = self._episodes.pop(request.session[SESSION_ID_KEY])
        seen, info = episode.reply.observation, episode.reply.info
        if not seen.done:
            with suppress(SQLEnvError):  # its lease ends anyway
                await self._client.close_episode(episode.id)
        lost = {"mask_sample": True, "failure_kind": SESSION_LOST}
        return VerifyResponse(
            **body.model_dump(),
            **(lost | {"failure_reason": str(episode.error)} if episode.error else {}),
            reward=0.0
            if episode.error
            else info.ledger.total
            if info.ledger
            else seen.reward or 0.0,
            question_id=info.question_id,
            correct=info.outcome == Outcome.CORRECT,
            steps=seen.step_count,
        )


if __name__ == "__main__":
    SQLEnvServer.run_webserver()
