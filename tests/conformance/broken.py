"""Faults that are put between the conformance suite and a correct server."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import httpx

Send = Callable[[httpx.Request], Awaitable[httpx.Response]]
Fault = Callable[[httpx.Request, Send], Coroutine[None, None, httpx.Response]]
Change = Callable[[Any, Any], object]  # of (the request's JSON, the reply's), in place
TRAINER, AGENT = "trainer-key-0123456789", "agent-key-0123456789"
STEP, RESET = "/step", "/reset"


def between(inner: httpx.AsyncBaseTransport, fault: Fault) -> httpx.AsyncBaseTransport:
    """Return a transport whose fault handles each request and may send it on, changed or not."""
    return httpx.MockTransport(lambda request: fault(request, inner.handle_async_request))


def parsed(content: bytes) -> Any:
    is_object = content[:1] == b"{" and content[-1:] == b"}"
    return json.loads(content) if is_object else {}


def on_reply(path: str, change: Change) -> Fault:
    """Change the replies of a path."""

    async def fault(request: httpx.Request, send: Send) -> httpx.Response:
        reply = await send(request)
        body = json.loads(await reply.aread())
        if request.url.path == path and reply.status_code == 200:
            change(parsed(request.content), body)
        return httpx.Response(reply.status_code, json=body)

    return fault


def without(field: str) -> Fault:
    """Remove a field from the requests."""

    async def fault(request: httpx.Request, send: Send) -> httpx.Response:
        body = parsed(request.content)
        if field not in body:
            return await send(request)
        del body[field]
        key = {"authorization": request.headers["authorization"]}
        return await send(httpx.Request(request.method, request.url, headers=key, json=body))

    return fault


def errors_as(**content: Any) -> Fault:
    """Answer every error with other content."""

    async def fault(request: httpx.Request, send: Send) -> httpx.Response:
        reply = await send(request)
        return reply if reply.status_code == 200 else httpx.Response(reply.status_code, **content)

    return fault


# -- changes of a reply


def set_in(*path: str | int, to: Any) -> Change:
    def change(_: Any, body: Any) -> None:
        for key in path[:-1]:
            body = body[key]
        body[path[-1]] = to() if callable(to) else to

    return change


def sorted_rows(_: Any, body: Any) -> None:
    head, *rows = body["observation"]["result"].split("\n")
    body["observation"]["result"] = "\n".join([head, *sorted(set(rows))])


def path_in_error(_: Any, body: Any) -> None:
    if body["observation"]["error"]:
        body["observation"]["error"] += ": unable to read /srv/data/shop.sqlite"


def rows_beside_error(_: Any, body: Any) -> None:
    if body["observation"]["error"]:
        body["observation"]["result"] = "sql\nCREATE TABLE orders"


def hint(sent: Any, body: Any) -> None:
    if str(sent.get("action", "")).startswith("ANSWER"):
        body["observation"]["error"] = f"off by {len(sent['action'])}"


def teacher(sent: Any, body: Any) -> None:
    if str(sent.get("action", "")).startswith("ANSWER") and body["info"]["question_id"] == "shop-4":
        body["observation"]["error"] = "try SELECT name FROM customers WHERE city = 'Oslo' then"


def oracle(sent: Any, body: Any) -> None:
    body["reward"] = len(str(sent.get("action", ""))) / 1000


def literal(sent: Any, body: Any) -> None:
    """Take only one line for an answer."""
    if body["done"] and "\n" in str(sent.get("action", "")):
        body["info"]["outcome"] = "wrong"


class Counted:
    """Make ids of numbers."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, _: Any, body: Any) -> None:
        self.last += 1
        body["episode_id"] = f"{self.last:036}"


# -- faulty servers


class Dying:
    """A server that is gone after a number of requests."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        self.left -= 1
        if self.left < 0:
            raise httpx.ConnectError("gone", request=request)
        return await send(request)


class Endless:
    """A server that ends no work: requests go on when their client leaves, one at a time.

    `extra_s` is how long a recursive query takes besides.
    """

    def __init__(self, extra_s: float = 0.0) -> None:
        self.turn, self.extra_s = asyncio.Lock(), extra_s

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        async def whole() -> httpx.Response:
            async with self.turn:
                if b"RECURSIVE" in request.content:
                    await asyncio.sleep(self.extra_s)
                reply = await send(request)
                content = await reply.aread()
            return httpx.Response(reply.status_code, content=content)

        return await asyncio.shield(asyncio.create_task(whole()))


class Boundless:
    """A server without limits on bytes: what it refuses is answered as the request before."""

    def __init__(self) -> None:
        self.last = b"{}"

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        reply = await send(request)
        content = await reply.aread()
        if reply.status_code in (400, 413):
            return httpx.Response(200, content=self.last)
        if reply.status_code == 200 and request.url.path == STEP:
            self.last = content
        return httpx.Response(reply.status_code, content=content)


async def slow_parser(request: httpx.Request, send: Send) -> httpx.Response:
    """A server that does nothing else while it parses many keys or arrays."""
    if request.content.count(b'":') > 100 or request.content.count(b"[") > 100:
        time.sleep(0.4)
    return await send(request)


async def parrot(request: httpx.Request, send: Send) -> httpx.Response:
    reply = await send(request)
    body = json.loads(await reply.aread())
    if reply.status_code != 200:
        body["error"]["message"] += request.content.decode(errors="replace")
    return httpx.Response(reply.status_code, json=body)


async def one_key(request: httpx.Request, send: Send) -> httpx.Response:
    """Send every request with the trainer's key."""
    request.headers["Authorization"] = f"Bearer {TRAINER}"
    return await send(request)


async def repeated(request: httpx.Request, send: Send) -> httpx.Response:
    """Answer every item of a batch as the first."""
    reply = await send(request)
    if request.url.path != "/step_batch":
        return reply
    items = len(json.loads(request.content)["steps"])
    results = json.loads(await reply.aread())["results"]
    return httpx.Response(200, json={"results": results[:1] * items})
