"""The heads of requests, over raw sockets: endless, many, half-sent. Honest requests go on."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import httpx

from env_server.conformance.check import Registry
from env_server.conformance.errors import check_shape
from env_server.conformance.wire import Failed, Reply, Skipped, Wire, expect

headers = Registry("headers")

REFUSALS = (400, 408, 413, 414, 431)  # 408: a gateway that waits for the end, for a while
MIB = 1024 * 1024
PIECE = b"x" * 65_536
CONNECT_S = 10.0
REPLY_S = 30.0  # for a refusal, which needs no more than the bytes so far
CLOSE_S = 45.0  # for the end of a connection whose head never comes
HALF_SENT = 200


class Socket:
    """One connection to the server, for bytes that no HTTP client would send.

    A plain socket, because asyncio's streams lose a reply when the server closes before it has read
    everything.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send until the server closes the connection."""
        with suppress(ConnectionError):
            for piece in pieces:
                await self.loop.sock_sendall(self.connection, piece)

    async def received(self, timeout_s: float) -> bytes | None:
        """Return what the server sends until it closes; None if it does not close in time."""
        content = b""
        with suppress(ConnectionError):
            try:
                async with asyncio.timeout(timeout_s):
                    while piece := await self.loop.sock_recv(self.connection, 65_536):
                        content += piece
            except TimeoutError:
                return None
        return content


@asynccontextmanager
async def connected(wire: Wire) -> AsyncIterator[Socket]:
    """Connect to the server's host and port; `Skipped` if they can't be reached so."""
    url, loop = wire.client.base_url, asyncio.get_running_loop()
    if url.scheme != "http":
        raise Skipped(f"{url.scheme}: a TLS terminator reads the heads, not the server")
    unreachable = f"no raw connection to {url.netloc.decode()}"
    try:
        found = await loop.getaddrinfo(url.host, url.port or 80, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Skipped(f"{unreachable}: {error}") from None
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as connection:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(connection, address)
        except OSError as error:
            raise Skipped(f"{unreachable}: {error}") from None
        yield Socket(connection)


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
    async with connected(wire) as opened:
        sending = asyncio.create_task(opened.send(pieces))
        try:
            content = await opened.received(REPLY_S)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    if content is None:
        raise Failed(f"{what} must be refused at once; no end of it within {REPLY_S:g} s")
    expect(content, f"{what} must be answered with an error, not only closed")
    first, _, body = content.partition(b"\r\n\r\n")
    status_line, _, fields = first.partition(b"\r\n")
    status = int(status_line.split()[1])
    expect(status in REFUSALS, f"{what} must be refused, not answered {status_line.decode()!r}")
    pairs = [field.split(b":", 1) for field in fields.split(b"\r\n")]
    named = httpx.Headers([(name, value.strip()) for name, value in pairs])
    health = wire.ok(await wire.send("GET", "/health"), f"GET /health after {what}")
    if "x-affinity-lanes" in health.headers and named.get("content-type") == "text/html":
        return f"HTTP {status} by the gateway, whose own page can't be changed"
    check_shape(Reply(status, body, json.loads(body), named), what)
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


@headers("a chunk's extension and a trailer without an end are refused")
async def _chunks(wire: Wire) -> str:
    lines = ("Transfer-Encoding: chunked", "Content-Type: application/json")
    start = head(wire, "POST", "/reset", *lines) + b"\r\n"
    endless = [PIECE] * (8 * MIB // len(PIECE))
    remarks = [
        await refused(wire, [start, b"1;", *endless], "an endless extension of a chunk"),
        await refused(wire, [start, b"0\r\nX-Long: ", *endless], "an endless trailer"),
    ]
    return ", ".join(remarks)


@headers("connections without a whole head are closed, and cost others nothing")
async def _half_sent(wire: Wire) -> str:
    async def held(sent: bytes) -> bool:
        async with connected(wire) as opened:
            await opened.send([sent])
            return await opened.received(CLOSE_S) is not None

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
