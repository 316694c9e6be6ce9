"""From the bytes of a request to its model, or to an error that says what was expected where."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from env_server.settings import Settings
from shared.actions import EXPECTED
from shared.errors import ActionParseError, BodyTooLarge, InvalidRequest

Request_ = TypeVar("Request_", bound=BaseModel)


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the request's body.

    Raises `BodyTooLarge` as soon as the header or the bytes so far show it, and 408 if the body
    takes too long to arrive.
    """
    max_bytes = settings.max_body_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        message = f"the body did not arrive within {settings.body_timeout_s:g} s"
        raise HTTPException(408, message, headers={"Connection": "close"}) from None
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLarge:
    message = f"the body is over {max_bytes:,} bytes: send less, or raise SQLENV_MAX_BODY_BYTES"
    return BodyTooLarge(message, max_bytes=max_bytes)


def parse(model: type[Request_], body: bytes) -> Request_:
    """Return a body as a request, or raise what `invalid` returns. No body is `{}`."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid(error) from None


def parse_item(model: type[Request_], item: Any) -> Request_:
    """Return one item of a batch, which was already read as JSON, as a request."""
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError | RequestValidationError) -> ActionParseError | InvalidRequest:
    """Return the error for a malformed request.

    An action that is neither an object nor text is the agent's error: `ActionParseError`.
    """
    problems = error.errors()
    first = problems[0]
    place = [str(part) for part in first["loc"]]
    if first["type"] == "json_invalid":
        reason = first["msg"].removeprefix("Invalid JSON: ")
        return InvalidRequest(f"the body is not JSON: {reason}; expected an object")
    is_action = place[:1] == ["action"] or (place[:1] == ["actions"] and len(place) > 1)
    if is_action and (first["type"] != "missing" or "SQLAction" in place):
        fields = [f"{p['loc'][-1]}: {p['msg']}" for p in problems if "SQLAction" in p["loc"][:-1]]
        path = ".".join(place[: 2 if place[0] == "actions" else 1])
        reason = f" ({'; '.join(fields[:3])})" if fields else ""
        forms = f"{EXPECTED}, or an object of action_type and argument"
        return ActionParseError(f"{path} is not an action{reason}; {forms}")
    texts = (f"{'.'.join(map(str, p['loc'])) or 'body'}: {p['msg']}" for p in problems[:5])
    return InvalidRequest("; ".join(texts))
