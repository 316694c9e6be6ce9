"""OpenEnv's sessions: `/ws`, as openenv-core 0.3 and openenv 0.10 speak it.

A connection is a session: text frames of JSON, one call in flight, one episode at a time. When the
connection is lost, the episode stays for its lease, and a reset with its `episode_id` and
`"resume": true` continues it on another. When the client closes the session, it is abandoned.

    in:  {"type": "reset", "data": {the fields of `Reset`}}
         {"type": "step", "data": {"action_type": "QUERY", "argument": "SELECT 1"}}
         {"type": "state"}
         {"type": "close"}
    out: {"type": "observation", "data": {"observation", "reward", "done", "metadata"}}
         {"type": "state", "data": {an SQLState's fields}}
         {"type": "error", "data": {"message", "code": OpenEnv's, "error_code": ours, ...}}
"""

import asyncio
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Response, WebSocket
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.websockets import WebSocketDisconnect

from env_server.http.auth import caller_of
from env_server.http.requests import parse_item, read_json, shown, with_gateway_id
from env_server.http.responses import as_error, count_error
from env_server.http.work import in_time, service_of
from shared.errors import (
    ActionParseError,
    CapacityReached,
    Conflict,
    InvalidRequest,
    SQLEnvError,
    UnknownEpisode,
)
from shared.models import ResetRequest, ResetResult, StepRequest, StepResult

SOCKET = "/ws"
TYPES = "reset, step, state, close"
NO_METHOD = {"code": -32601, "message": "tools are served at POST /mcp, not on this connection"}
openenv = APIRouter()


class Reset(ResetRequest):
    resume: bool = False
    """Continue the episode of `episode_id`, whose connection was lost."""


class Session:
    def __init__(self, socket: WebSocket) -> None:
        self.socket, self.pool = socket, service_of(socket).pool
        self.episode_id: str | None = None
        self.answered, self.done = 0, False  # steps of the episode, and whether it is over

    async def answer(self, frame: bytes) -> bytes | None:
        """Return the frame that answers one; None if it closes the session."""
        try:
            message = read_json(frame)
        except InvalidRequest as error:
            return self.error(error, "INVALID_JSON")
        try:
            return await self._dispatch(message)
        except Exception as error:
            return self.error(as_error(error))

    async def _dispatch(self, message: Any) -> bytes | None:
        data = message.get("data", {}) if isinstance(message, dict) else None
        if not isinstance(data, dict):
            raise InvalidRequest(
                f"{shown(message if data is None else data)} is wrong; expected an object of type "
                "and data, which is an object"
            )
        match message.get("type"):
            case "reset":
                return await self.reset(data)
            case "step":
                return await self.step(data)
            case "state":
                state = await in_time(self.socket, self.pool.state, self._episode())
                self.answered, self.done = state.step_count, state.done
                return to_json({"type": "state", "data": state})
            case "close":
                await self.leave()
                return None
            case "mcp":
                reply = {"jsonrpc": "2.0", "id": data.get("id"), "error": NO_METHOD}
                return to_json({"type": "mcp", "data": reply})
            case other:
                problem = InvalidRequest(f"type: {shown(other)} is wrong; expected one of {TYPES}")
                return self.error(problem, "UNKNOWN_TYPE")

    async def reset(self, data: dict[str, Any]) -> bytes:
        """Start an episode or continue one that exists, and leave the one before it."""
        pool, wanted = self.pool, parse_item(Reset, data)
        if wanted.resume:
            if wanted.episode_id is None:
                raise InvalidRequest("resume: name the episode to continue with episode_id")
            reply = await in_time(self.socket, pool.resume, wanted.episode_id)
            if self.episode_id != wanted.episode_id:
                await self.leave()
            return self._observation(reply)
        await self.leave()
        caller = caller_of(self.socket)
        held = wanted.episode_id and pool.store.find(wanted.episode_id, caller)
        if held and held.outcome is None:
            raise Conflict(
                f"episode {wanted.episode_id} exists: continue it with resume: true, or choose "
                "another episode_id"
            )
        if held and not caller.is_agent:  # an agent can't start an ended id again
            await in_time(self.socket, pool.close, held.episode_id)
        begun = with_gateway_id(wanted, self.socket)
        return self._observation(await in_time(self.socket, pool.reset, begun))

    async def step(self, data: dict[str, Any]) -> bytes:
        """Play an action. Its number is that of the steps seen, so that a repeat counts once."""
        data.pop("metadata", None)  # a field of every action of OpenEnv's
        fields = {"episode_id": self._episode(), "action": data, "step": self.answered}
        wanted = parse_item(StepRequest, fields)
        return self._observation(await in_time(self.socket, self.pool.step, wanted))

    async def leave(self) -> None:
        """Abandon the episode unless it is over."""
        episode_id, self.episode_id = self.episode_id, None
        if episode_id is not None and not self.done:
            with suppress(UnknownEpisode):
                await in_time(self.socket, self.pool.close, episode_id)

    def error(self, error: SQLEnvError, code: str = "EXECUTION_ERROR") -> bytes:
        """Return an error as a frame, and count it."""
        count_error(error, self.socket.app.state.metrics)
        fields = error.details | {"error_code": error.code, "retryable": error.retryable}
        if isinstance(error, CapacityReached):
            code = "CAPACITY_REACHED"
            fields |= {
                "active_sessions": error.details.get("used"),
                "max_sessions": error.details.get("capacity"),
            }
        elif isinstance(error, InvalidRequest | ActionParseError) and code == "EXECUTION_ERROR":
            code = "VALIDATION_ERROR"
        fields |= {"message": error.message, "code": code}
        return to_json({"type": "error", "data": fields})

    def _episode(self) -> str:
        if self.episode_id is None:
            raise Conflict(
                "this connection has no episode: send a reset first; with episode_id and "
                "resume: true it continues the episode of a lost connection"
            )
        return self.episode_id

    def _observation(self, reply: StepResult) -> bytes:
        """Return a reply of the pool as a frame, and remember where the episode stands."""
        if isinstance(reply, ResetResult):
            self.episode_id = reply.episode_id
        self.answered, self.done = reply.observation.step_count, reply.done
        data = {
            "observation": reply.observation,
            "reward": reply.reward,
            "done": reply.done,
            "metadata": {"episode_id": self.episode_id, **dict(reply.info)},
        }
        return to_json({"type": "observation", "data": data})


@openenv.websocket(SOCKET)
async def serve(socket: WebSocket) -> None:
    service = service_of(socket)
    await socket.accept()
    session = Session(socket)
    with suppress(WebSocketDisconnect):
        while True:
            try:
                async with asyncio.timeout(service.settings.lease_s):  # the episode's, too
                    message = await socket.receive()
            except TimeoutError:
                await socket.close(reason="idle for SQLENV_LEASE_S")
                return
            if message["type"] != "websocket.receive":
                return
            frame = message.get("bytes") or (message.get("text") or "").encode()
            if (reply := await session.answer(frame)) is None:
                await socket.close()
                return
            await socket.send_text(reply.decode())


@openenv.get(SOCKET, include_in_schema=False)
async def no_socket() -> Response:
    problem = "Upgrade Required: this path speaks WebSocket"
    raise HTTPException(426, problem, headers={"Upgrade": "websocket"})
