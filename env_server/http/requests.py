"""From the bytes of a request to its model, or to an error that says what was expected where."""

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_urlsafe
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json, to_json
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from env_server.settings import Settings
from shared.actions import EXPECTED, SQLAction
from shared.errors import ActionParseError, BodyTooLarge, InvalidRequest
from shared.models import MAX_STEP_BUDGET, ResetRequest

Request_ = TypeVar("Request_", bound=BaseModel)
# A step's longest action has 20,000 bytes, each of which JSON may write as six (`\u0041`).
MAX_STEP_BYTES = 128 * 1024
LARGE_BYTES = 64 * 1024
# times the bytes of a text that JSON writes with escapes (`\u00e9`), without control characters
ESCAPED = 3
# Objects and arrays take most of the time to parse JSON: 1,000,000 of them, nested, 0.4 s. The
# largest batch of resets has 52,000.
MAX_BRACKETS = 100_000
# the beginning of an episode's id, by which a gateway knows where to send the episode's steps
EPISODE_ID_HEADER = "x-episode-id"
GZIP = b"\x1f\x8b"
MAX_NAME_CHARS = 100  # of a field's name in an error


def most_bytes(request: Request, settings: Settings) -> tuple[int, str]:
    """Return how many bytes the body of a request can need, and what to do if it has more."""
    path, most = get_route_path(request.scope), settings.max_body_bytes
    # a form of the page, or a call of MCP's, holds one action at most
    needed, remedy = MAX_STEP_BYTES, "shorten the action"
    if path == "/reset":
        needed += ESCAPED * settings.max_episode_bytes
        remedy = "raise SQLENV_MAX_EPISODE_BYTES"
    if path.endswith("_batch") or needed >= most:
        return most, "raise SQLENV_MAX_BODY_BYTES"
    return needed, remedy


async def read_body(
    request: Request, settings: Settings, large: Callable[[], Awaitable[None]]
) -> bytes:
    """Return the request's body, of which over `LARGE_BYTES` are read after awaiting `large`.

    Raises `BodyTooLarge` as soon as the header or the bytes so far show it, 408 if the body takes
    too long to arrive, and `InvalidRequest` if it is compressed or a gateway asks for it: X-Refusal
    is the message.
    """
    max_bytes, remedy = most_bytes(request, settings)

    def check(size: int) -> None:
        if size > max_bytes:
            problem = f"the body is over {max_bytes:,} bytes: send less, or {remedy}"
            raise BodyTooLarge(problem, max_bytes=max_bytes)

    declared = request.headers.get("content-length", "")
    check(int(declared) if declared.isdecimal() else 0)
    if refusal := request.headers.get("x-refusal"):
        raise InvalidRequest(refusal)
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidRequest(f"the body has the Content-Encoding {encoding[:20]}: send it plain")
    chunks, size, is_large = [], 0, False
    try:
        async with asyncio.timeout(settings.body_timeout_s) as timer:
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                check(size)
                if size > LARGE_BYTES and not is_large:
                    is_large = True
                    timer.reschedule(None)
                    await large()
                    timer.reschedule(asyncio.get_running_loop().time() + settings.body_timeout_s)
    except TimeoutError:
        message = f"the body did not arrive within {settings.body_timeout_s:g} s"
        raise HTTPException(408, message, headers={"Connection": "close"}) from None
    return b"".join(chunks)


def parse(model: type[Request_], body: bytes) -> Request_:
    """Return a body as a request; an empty one is `{}`. Raises what `invalid` returns."""
    return parse_item(model, read_json(body))


def read_json(body: bytes) -> Any:
    """Return the JSON value of a body, `{}` without one; raises `InvalidRequest`."""
    if body.count(b"[") + body.count(b"{") > MAX_BRACKETS:
        raise InvalidRequest(f"the body has over {MAX_BRACKETS:,} objects and arrays: send less")
    if body.startswith(GZIP):
        raise InvalidRequest("the body is compressed by gzip: send it plain")
    try:
        # without the cache of texts, which 200,000 different keys make slower, not faster
        return from_json(body or b"{}", cache_strings=False)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}; expected an object") from None


def parse_item(model: type[Request_], item: Any) -> Request_:
    """Return a JSON value, a body or one item of a batch, as a request; raises as `parse`."""
    if not isinstance(item, dict):
        raise InvalidRequest(f"body: {shown(item)} is wrong; expected an object")
    if len(item) > len(model.model_fields):
        names = ", ".join(model.model_fields)
        raise InvalidRequest(f"body: {len(item):,} fields; expected only {names}")
    _check_actions(item)
    try:
        return model.model_validate(item)
    except ValidationError as error:
        raise invalid(error, model) from None


def with_gateway_id(wanted: ResetRequest, request: HTTPConnection) -> ResetRequest:
    """Return a reset whose episode has the id that a gateway begins, if one sends a beginning."""
    if wanted.episode_id is None and (chosen := request.headers.get(EPISODE_ID_HEADER)):
        unguessable = f"{chosen}:{token_urlsafe(16)}"
        checked = parse_item(ResetRequest, {"episode_id": unguessable})
        wanted = wanted.model_copy(update={"episode_id": checked.episode_id})
    return wanted


def _check_actions(item: dict[str, Any]) -> None:
    """Raise `ActionParseError` for an action with more keys than fields, each 10 us to pydantic."""
    actions = {"action": item.get("action")}
    if isinstance(replayed := item.get("actions"), list):
        actions |= {f"actions.{n}": one for n, one in enumerate(replayed[:MAX_STEP_BUDGET])}
    for place, action in actions.items():
        if isinstance(action, dict) and len(action) > len(SQLAction.model_fields):
            raise _no_action(place, f" ({len(action):,} fields)")


def _no_action(place: str, reason: str) -> ActionParseError:
    forms = f"{EXPECTED}, or an object of action_type and argument"
    return ActionParseError(f"{place} is not an action{reason}; {forms}")


def invalid(error: ValidationError, model: type[BaseModel]) -> ActionParseError | InvalidRequest:
    """Return the error for a malformed request: which field, and what pydantic says of it."""
    problems = error.errors(include_url=False)
    first = problems[0]
    place = list(first["loc"])
    is_action = place[:1] == ["action"] or (place[:1] == ["actions"] and len(place) > 1)
    if is_action and (first["type"] != "missing" or "SQLAction" in place):
        inside = (problem for problem in problems if "SQLAction" in problem["loc"][:-1])
        fields = [_text(str(one["loc"][-1]), "", one, SQLAction) for one in inside]
        path = ".".join(map(str, place[: 2 if place[0] == "actions" else 1]))
        reason = f" ({'; '.join(fields[:3])})" if fields else ""
        return _no_action(path, reason)
    # of a field that takes one of several kinds, the deepest: the item of a list, not the list
    by_field: dict[str, tuple[str, ErrorDetails]] = {}
    for problem in problems:
        name = str(problem["loc"][0])
        item = "".join(f".{part}" for part in problem["loc"] if isinstance(part, int))
        before = by_field.get(name)
        if before is None or len(item) > len(before[0]) or problem["type"] == "too_long":
            by_field[name] = item, problem
    found = [*by_field.items()][:3]
    return InvalidRequest("; ".join(_text(name, *place, model) for name, place in found))


def _text(name: str, item: str, problem: ErrorDetails, model: type[BaseModel]) -> str:
    """Return what is wrong with a field, or an item of it."""
    path = repr(name[:MAX_NAME_CHARS])[1:-1] + item  # on one line
    if problem["type"] == "extra_forbidden":
        return f"{path}: there is no such field; expected only {', '.join(model.model_fields)}"
    given = "" if problem["type"] == "missing" else f" (got {shown(problem['input'])})"
    return f"{path}: {problem['msg'].removeprefix('Value error, ')}{given}"


def shown(value: Any) -> str:
    """Return a wrong value for an error, on one line and never long."""
    if isinstance(value, list | dict):
        return f"a list of {len(value):,}" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(value[:40]) + ("..." if len(value) > 40 else "")
    if isinstance(value, int) and abs(value) >= 10**18:  # Python may refuse to write it
        return "a number of 19 or more digits"
    return to_json(value).decode()
