"""From the bytes of a request to its model, or to the error that says what was expected where."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from env_server.settings import Settings
from shared.actions import EXPECTED
from shared.errors import BodyTooLarge, InvalidAction, InvalidRequest

Request_ = TypeVar("Request_", bound=BaseModel)


async def read_body(request: Request, settings: Settings) -> bytes:
    """The request's body, or `BodyTooLarge` as soon as its length says so or its bytes do; 408 if
    it takes too long."""
    max_bytes = settings.max_body_bytes
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > max_bytes:
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
        late = f"the body did not arrive within {settings.body_timeout_s:g} s"
        raise HTTPException(408, late, headers={"Connection": "close"}) from None
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is over {max_bytes:,} bytes: send less, or raise SQLENV_MAX_BODY_BYTES",
        max_bytes=max_bytes,
    )


def parse(model: type[Request_], body: bytes) -> Request_:
    """`body` as a request, or the error that says what was expected where. No body at all is `{}`."""
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid(error) from None


def parse_item(model: type[Request_], item: Any) -> Request_:
    """The same for one item of a batch, its JSON already read."""
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error) from None


def invalid(error: ValidationError | RequestValidationError) -> InvalidAction | InvalidRequest:
    """What is wrong with a request. An action that is neither an object nor text is the agent's:
    `InvalidAction`."""
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
        return InvalidAction(
            f"{path} is not an action{reason}; {EXPECTED}, or an object of action_type and argument"
        )
    return InvalidRequest(
        "; ".join(f"{'.'.join(map(str, p['loc'])) or 'body'}: {p['msg']}" for p in problems[:5])
    )
