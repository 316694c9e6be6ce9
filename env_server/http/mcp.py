"""MCP at `POST /mcp`: episodes as tools, over streamable HTTP without sessions.

Every call names its episode, so a lost connection, another client or a restarted one continues it.
The package `mcp` (1.24 or newer, also 2.x) parses and answers; it is imported at the first call.
Replies are JSON. There is no stream to listen to, so GET gets 405.
"""

import logging
from functools import cache
from importlib.util import find_spec
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json
from starlette.types import Message, Receive, Scope, Send

from env_server.http.requests import read_json
from env_server.http.responses import json_reply
from env_server.http.work import incoming
from shared.errors import InvalidRequest

MCP = "/mcp"
INVALID_REQUEST, NOT_INSTALLED = -32600, -32001
MISSING = "this server lacks the package mcp: run 'pip install mcp' (extra 'mcp'), then restart it"
MAX_CONTAINERS = 1_000  # each costs 2 us; a call with 100 actions has 103
mcp = APIRouter()


@mcp.post(MCP, include_in_schema=False)
async def call(request: Request) -> Response:
    async with incoming(request) as body:
        try:
            message = read_json(body)
        except InvalidRequest as error:
            return rpc_error(INVALID_REQUEST, error.message)
    if _is_crowded(message):
        problem = f"the message has over {MAX_CONTAINERS:,} objects and arrays: send less"
        return rpc_error(INVALID_REQUEST, problem)
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return rpc_error(INVALID_REQUEST, "not JSON-RPC 2.0; expected an MCP request, such as ping")
    if find_spec("mcp") is None:
        return rpc_error(NOT_INSTALLED, MISSING, message.get("id"))
    return Call(body)


def _is_crowded(message: Any) -> bool:
    """Return whether a message has more objects and arrays than the package can parse quickly."""
    containers = [message]
    for one in containers:  # which grows
        inside = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        containers += [value for value in inside if isinstance(value, dict | list)]
        if len(containers) > MAX_CONTAINERS:
            return True
    return False


def rpc_error(code: int, message: str, request_id: Any = None) -> Response:
    """Return a JSON-RPC error; its HTTP status is 200, as OpenEnv's validator expects."""
    error = {"code": code, "message": message}
    return json_reply(to_json({"jsonrpc": "2.0", "id": request_id, "error": error}))


class Call(Response):
    """The reply of the package to a body that was read already."""

    def __init__(self, body: bytes) -> None:
        self.message: Message = {"type": "http.request", "body": body, "more_body": False}
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages = [self.message]

        async def replayed() -> Message:
            return messages.pop() if messages else await receive()

        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        # for one call: it holds no state, and none can run twice
        manager = StreamableHTTPSessionManager(_server(), json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, replayed, send)


@cache
def _server() -> Any:
    from env_server.http.mcp_tools import tools

    logging.getLogger("mcp").setLevel(logging.WARNING)  # two lines per call otherwise
    server = tools()
    server.streamable_http_app()  # creates the session manager, whose `app` is the server
    return server.session_manager.app
