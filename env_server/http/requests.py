"""From the bytes of a request to its model, or to an error that says what was expected where."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException

from env_server.settings import Settings
from shared.actions import EXPECTED, SQLAction
from shared.errors import ActionParseError, BodyTooLarge, InvalidRequest
from shared.models import MAX_STEP_BUDGET

Request_ = TypeVar("Request_", bound=BaseModel)
# A step's longest action has 20,000 bytes, each of which JSON may write as six (`\u0041`).
MAX_STEP_BYTES = 128 * 1024
# Objects and arrays take most of the time to parse JSON: 1,000,000 of them, nested, 0.4 s. The
# largest batch of resets has 52,000.
MAX_BRACKETS = 100_000
MAX_NAME_CHARS = 100  # of a field's name in an error


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the request's body.

    Raises `BodyTooLarge` as soon as the header or the bytes so far show it, 408 if the body takes
    too long to arrive, and `InvalidRequest` if a gateway asks for it: X-Refusal is the message.
    """
    max_bytes = settings.max_body_bytes
    if request.scope["path"] == "/step":
        max_bytes = min(max_bytes, MAX_STEP_BYTES)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    if refusal := request.headers.get("x-refusal"):
        raise InvalidRequest(refusal)
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
    remedy = "raise SQLENV_MAX_BODY_BYTES" if max_bytes != MAX_STEP_BYTES else "shorten the action"
    return BodyTooLarge(
        f"the body is over {max_bytes:,} bytes: send less, or {remedy}", max_bytes=max_bytes
    )


def parse(model: type[Request_], body: bytes) -> Request_:
    """Return a body as a request, or raise what `invalid` returns. No body is `{}`."""
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise InvalidRequest(f"the body has over {MAX_BRACKETS:,} objects and arrays: send less")
    try:
        # without the cache of texts, which 200,000 different keys make slower, not faster
        value = from_json(body or b"{}", cache_strings=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}; expected an object") from None
    return parse_item(model, value)


def parse_item(model: type[Request_], item: Any) -> Request_:
    """Return what was already read as JSON, a body or one item of a batch, as a request."""
    if not isinstance(item, dict):
        raise InvalidRequest("body: Input should be an object")
    if len(item) > len(model.model_fields):
        names = ", ".join(model.model_fields)
        raise InvalidRequest(f"body: {len(item):,} fields; expected only {names}")
    _check_actions(item)
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error) from None


def _check_actions(item: dict[str, Any]) -> None:
    """Raise `ActionParseError` for an action with more keys than fields.

    pydantic would make an error of each, in 10 us.
    """
    actions = {"action": item.get("action")}
    if isinstance(replayed := item.get("actions"), list):
        actions |= {f"actions.{n}": one for n, one in enumerate(replayed[:MAX_STEP_BUDGET])}
    for place, action in actions.items():
        if isinstance(action, dict) and len(action) > len(SQLAction.model_fields):
            raise _no_action(place, f" ({len(action):,} fields)")


def _no_action(place: str, reason: str) -> ActionParseError:
    forms = f"{EXPECTED}, or an object of action_type and argument"
    return ActionParseError(f"{place} is not an action{reason}; {forms}")


def invalid(error: ValidationError | RequestValidationError) -> ActionParseError | InvalidRequest:
    """Return the error for a malformed request.

    An action that is neither an object nor text is the agent's error: `ActionParseError`.
    """
    problems: list[Any] = list(error.errors())
    for problem in problems:
        problem["loc"] = tuple(str(part)[:MAX_NAME_CHARS] for part in problem["loc"])
    first = problems[0]
    place = list(first["loc"])
    is_action = place[:1] == ["action"] or (place[:1] == ["actions"] and len(place) > 1)
    if is_action and (first["type"] != "missing" or "SQLAction" in place):
        fields = [f"{p['loc'][-1]}: {p['msg']}" for p in problems if "SQLAction" in p["loc"][:-1]]
        path = ".".join(place[: 2 if place[0] == "actions" else 1])
        reason = f" ({'; '.join(fields[:3])})" if fields else ""
        return _no_action(path, reason)
    texts = (f"{'.'.join(p['loc']) or 'body'}: {p['msg']}" for p in problems[:5])
    return InvalidRequest("; ".join(texts))
