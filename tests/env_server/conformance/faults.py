"""Faults that are put between the conformance suite and a correct server."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

Send = Callable[[httpx.Request], Awaitable[httpx.Response]]
TRAINER, AGENT = "trainer-key-0123456789", "agent-key-0123456789"


class Between(httpx.AsyncBaseTransport):
    """A transport whose fault handles each request and may `send` it on, changed or not."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        fault: Callable[[httpx.Request, Send], Awaitable[Any]],
    ) -> None:
        self.inner, self.fault = inner, fault

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        reply = await self.fault(request, self.inner.handle_async_request)
        assert isinstance(reply, httpx.Response)
        return reply


@dataclass
class OnReply:
    """A fault in the replies of some paths: `change` edits their JSON in place."""

    paths: tuple[str, ...]
    change: Callable[[Any, Any], None]  # (the request's JSON, the reply's)

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        is_object = request.content[:1] == b"{" and request.content[-1:] == b"}"
        sent = json.loads(request.content) if is_object else {}
        reply = await send(request)
        content = await reply.aread()
        if request.url.path in self.paths and reply.status_code == 200:
            body = json.loads(content)
            self.change(sent, body)
            content = json.dumps(body).encode()
        return httpx.Response(
            reply.status_code, headers={"content-type": "application/json"}, content=content
        )


@dataclass
class OnRequest:
    """A fault in the requests: the field `drop` is removed from their JSON."""

    drop: str

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        try:
            body = json.loads(request.content)
            body.pop(self.drop, None)
        except (ValueError, AttributeError):
            return await send(request)
        key = {name: value for name, value in request.headers.items() if name == "authorization"}
        return await send(httpx.Request(request.method, request.url, headers=key, json=body))


class OneAtATime:
    """Every request waits for the one before it, and recursive queries take their time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        async with self.lock:
            if b"RECURSIVE" in request.content:
                await asyncio.sleep(0.4)
            return await send(request)


class Dying:
    """A server that is gone after a number of requests."""

    def __init__(self, after: int) -> None:
        self.left = after

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        self.left -= 1
        if self.left < 0:
            raise httpx.ConnectError("gone", request=request)
        return await send(request)


async def errors_without_shape(request: httpx.Request, send: Send) -> httpx.Response:
    reply = await send(request)
    wrong = httpx.Response(reply.status_code, json={"detail": "something is wrong"})
    return reply if reply.status_code == 200 else wrong


async def pages_for_errors(request: httpx.Request, send: Send) -> httpx.Response:
    reply = await send(request)
    page = httpx.Response(reply.status_code, text="<html>Sorry</html>")
    return reply if reply.status_code == 200 else page


async def slow_parser(request: httpx.Request, send: Send) -> httpx.Response:
    """A server that does nothing else while it parses many keys or arrays."""
    if request.content.count(b'":') > 100 or request.content.count(b"[") > 100:
        time.sleep(1.0)
    return await send(request)


async def takes_anything(request: httpx.Request, send: Send) -> httpx.Response:
    if len(request.content) > 2_500_000:
        request = httpx.Request(request.method, request.url, content=b"[]")
    return await send(request)


async def parrot(request: httpx.Request, send: Send) -> httpx.Response:
    reply = await send(request)
    if reply.status_code == 200:
        return reply
    body = json.loads(await reply.aread())
    body["error"]["message"] += request.content.decode(errors="replace")
    return httpx.Response(reply.status_code, json=body)


def set_in(*path: str | int, to: Any) -> Callable[[Any, Any], None]:
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
        body["observation"]["error"] = (
            "try SELECT name FROM customers WHERE city = 'Oslo' next time"
        )


def backwards(_: Any, body: Any) -> None:
    body["results"].reverse()


def literal(sent: Any, body: Any) -> None:
    """Take only JSON and bare words for answers."""
    marks = ("\n", "; ", " and ", "\t", ": ", "\\boxed", "- ")
    text = str(sent.get("action", "")).removeprefix("ANSWER: ")
    if body["done"] and any(mark in text for mark in marks):
        body["info"]["outcome"] = "wrong"


class SlowJudge:
    """A server that takes much longer for a batch of long answers than for one of short ones."""

    def __init__(self) -> None:
        self.short_s = 0.0

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        began = time.monotonic()
        reply = await send(request)
        if len(request.content) > 500_000:
            await asyncio.sleep(10 * self.short_s + 2.0)
        elif request.url.path == "/step_batch":
            self.short_s = time.monotonic() - began
        return reply


STEP, RESET, BOTH = ("/step",), ("/reset",), ("/step", "/reset")


def oracle(sent: Any, body: Any) -> None:
    body["reward"] = len(str(sent.get("action", ""))) / 1000


class Counted:
    """A server whose ids are numbers."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, _: Any, body: Any) -> None:
        self.last += 1
        body["episode_id"] = f"{self.last:036}"


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


class Endless:
    """A server that ends no work: requests go on when their client leaves, one at a time."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()

    async def __call__(self, request: httpx.Request, send: Send) -> httpx.Response:
        async def whole() -> httpx.Response:
            async with self.turn:
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
        if reply.status_code == 200 and request.url.path == "/step":
            self.last = content
        refused = reply.status_code in (400, 413)
        return httpx.Response(
            200 if refused else reply.status_code, content=self.last if refused else content
        )
