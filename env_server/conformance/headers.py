"""The heads of requests, over raw sockets: endless, many, half-sent. Honest requests go on."""

import asyncio
import json
import ssl
from collections.abc import Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import httpx

from env_server.conformance.check import Registry
from env_server.conformance.errors import check_shape
from env_server.conformance.wire import Failed, Reply, Skipped, Wire, expect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

headers = Registry("headers")

REFUSALS = (400, 413, 414, 431)
MIB = 1024 * 1024
PIECE = b"x" * 65_536
CONNECT_S = 10.0
REPLY_S = 30.0  # for a refusal, which needs no more than the bytes so far
CLOSE_S = 45.0  # for the end of a connection whose head never comes
HALF_SENT = 200


class Socket:
    """One connection to the server, for bytes that no HTTP client would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send until the server closes the connection."""
        with suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()

    async def received(self, timeout_s: float) -> bytes | None:
        """Return what the server sends until it closes; None if it does not close in time."""
        content = b""
        with suppress(ConnectionError):
            try:
                async with asyncio.timeout(timeout_s):
                    while piece := await self.reader.read(65_536):
                        content += piece
            except TimeoutError:
                return None
        return content


@asynccontextmanager
async def connected(wire: Wire) -> "AsyncIterator[Socket]":
    """Connect to the server's host and port; `Skipped` if they can't be reached so."""
    url = wire.client.base_url
    secure = ssl.create_default_context() if url.scheme == "https" else None
    port = url.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(url.host, port, ssl=secure)
    except OSError as error:
        raise Skipped(f"no raw connection to {url.host}:{port}: {error}") from None
    try:
        yield Socket(reader, writer)
    finally:
        writer.transport.abort()


def head(wire: Wire, method: str, path: str, *lines: str) -> bytes:
    """Return the start of a request, without the empty line that ends its head."""
    url = wire.client.base_url
    target = url.raw_path.decode().rstrip("/") + path
    known = [f"Host: {url.netloc.decode()}"]
    if key := wire.client.headers.get("authorization"):
        known.append(f"Authorization: {key}")
    return "\r\n".join([f"{method} {target} HTTP/1.1", *known, *lines, ""]).encode()


async def refused(wire: Wire, pieces: Iterable[bytes], what: str) -> str:
    """Send bytes; the server must refuse them with an error and close. Returns a remark."""
    async with connected(wire) as socket:
        sending = asyncio.create_task(socket.send(pieces))
        try:
            content = await socket.received(REPLY_S)
        finally:
            sending.cancel()
    if content is None:
        raise Failed(f"{what} must be refused at once; no end of it within {REPLY_S:g} s")
    expect(content, f"{what} must be answered with an error, not only closed")
    first, _, body = content.partition(b"\r\n\r\n")
    status_line, _, fields = first.partition(b"\r\n")
    status = int(status_line.split()[1])
    expect(status in REFUSALS, f"{what} must be refused, not answered {status_line.decode()!r}")
    pairs = [field.split(b":", 1) for field in fields.split(b"\r\n")]
    named = httpx.Headers([(name, value.strip()) for name, value in pairs])
    check_shape(Reply(status, body, json.loads(body), named), what)
    wire.ok(await wire.send("GET", "/health"), f"GET /health after {what}")
    return f"HTTP {status}"


@headers("a header without an end is refused")
async def _long(wire: Wire) -> str:
    start = head(wire, "GET", "/health") + b"X-Long: "
    return await refused(wire, [start, *[PIECE] * (8 * MIB // len(PIECE))], "an endless header")


@headers("a thousand headers are refused")
async def _many(wire: Wire) -> str:
    lines = [f"X-{number}: 1" for number in range(1_000)]
    request = head(wire, "GET", "/health", "Connection: close", *lines) + b"\r\n"
    return await refused(wire, [request], "a thousand headers")


@headers("a URL of 60,000 bytes is refused")
async def _url(wire: Wire) -> str:
    request = head(wire, "GET", "/health?" + "x" * 60_000, "Connection: close") + b"\r\n"
    return await refused(wire, [request], "a long URL")


@headers("extensions of chunks and trailers count like headers")
async def _chunks(wire: Wire) -> str:
    lines = ("Transfer-Encoding: chunked", "Content-Type: application/json", "Connection: close")
    start = head(wire, "POST", "/reset", *lines) + b"\r\n"
    chunk = b"1;" + b"x" * 8_000 + b"\r\n \r\n"
    trailer = b"X-Trailer: " + b"x" * 8_000 + b"\r\n"
    remarks = [
        await refused(wire, [start, *[chunk] * 128, b"0\r\n\r\n"], "a body of chunk extensions"),
        await refused(wire, [start, b"0\r\n", *[trailer] * 128, b"\r\n"], "a body of trailers"),
    ]
    return ", ".join(remarks)


@headers("connections without a whole head are closed, and cost others nothing")
async def _half_sent(wire: Wire) -> str:
    async def held(sent: bytes) -> bool:
        async with connected(wire) as socket:
            await socket.send([sent])
            return await socket.received(CLOSE_S) is not None

    half = head(wire, "GET", "/health") + b"X-Half: "
    tasks = [asyncio.create_task(held(half)) for _ in range(HALF_SENT)]
    tasks += [asyncio.create_task(held(b"")) for _ in range(HALF_SENT // 10)]
    try:
        while not all(task.done() for task in tasks):
            wire.ok(await wire.send("GET", "/health"), "GET /health beside half-sent heads")
            await asyncio.wait(tasks, timeout=0.5)
        closed = [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
    expect(all(closed), f"{closed.count(False)} connections were open after {CLOSE_S:g} s")
    return f"{len(closed)} connections closed"
