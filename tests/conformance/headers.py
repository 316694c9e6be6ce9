"""The heads of requests, over raw sockets: endless, many, half-sent. Honest requests go on."""

import asyncio
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from email import message_from_bytes

import httpx

from tests.conformance.check import Registry
from tests.conformance.wire import Failed, Reply, Skipped, Wire, expect

headers = Registry("headers")

REFUSALS = (400, 408, 413, 414, 431)  # 408: a gateway that waits for the end, for a while
PIECE = b"x" * 65_536
ENDLESS = [PIECE] * 128  # 8 MiB
SOCKET_S = 30.0  # to connect, or for a refusal, which needs no more than the bytes so far
CLOSE_S = 45.0  # for the end of a connection whose head never comes
HALF_SENT = 220


def connected(wire: Wire) -> socket.socket:
    """Connect to the server's host and port, for bytes that no HTTP client would send."""
    url = wire.client.base_url
    if url.scheme != "http":
        raise Skipped(f"{url.scheme}: a TLS terminator reads the heads, not the server")
    try:
        return socket.create_connection((url.host, url.port or 80), timeout=SOCKET_S)
    except OSError as error:
        raise Skipped(f"no raw connection to {url.netloc.decode()}: {error}") from None


def head(wire: Wire, method: str, path: str, *lines: str) -> bytes:
    """Return the start of a request, without the empty line that ends its head."""
    url = wire.client.base_url
    target = url.raw_path.decode().rstrip("/") + path
    known = [f"Host: {url.netloc.decode()}"]
    if key := wire.client.headers.get("authorization"):
        known.append(f"Authorization: {key}")
    return "\r\n".join([f"{method} {target} HTTP/1.1", *known, *lines, ""]).encode()


def exchange(wire: Wire, pieces: Iterable[bytes]) -> bytes | None:
    """Return what the server sends until it closes; None if it does not close in time."""
    content = b""
    with connected(wire) as connection:
        try:
            with suppress(ConnectionError):  # closed before it has read everything
                for piece in pieces:
                    connection.sendall(piece)
            with suppress(ConnectionError):
                while piece := connection.recv(65_536):
                    content += piece
        except TimeoutError:
            return None
    return content


async def refused(wire: Wire, what: str, *pieces: bytes) -> None:
    """Send bytes; the server must refuse them with an error and close."""
    content = await asyncio.to_thread(exchange, wire, pieces)
    if content is None:
        raise Failed(f"{what} must be refused and closed within {SOCKET_S:g} s")
    expect(content, f"{what} must be answered with an error, not only closed")
    first, _, body = content.partition(b"\r\n\r\n")
    status_line, _, fields = first.partition(b"\r\n")
    status = int(status_line.split()[1])
    expect(status in REFUSALS, f"{what} must be refused, not answered {status_line.decode()!r}")
    named = httpx.Headers(message_from_bytes(fields).items())
    by_gateway = "x-affinity-lanes" in (await wire.get("/health")).headers
    if not (by_gateway and named.get("content-type") == "text/html"):  # its own page is fixed
        Reply(httpx.Response(status, content=body, headers=named)).error(what)


@headers("a header without an end is refused")
async def _long(wire: Wire) -> None:
    start = head(wire, "GET", "/health") + b"X-Long: "
    await refused(wire, "an endless header", start, *ENDLESS)


@headers("a thousand headers are refused")
async def _many(wire: Wire) -> None:
    lines = [f"X-{number}: 1" for number in range(1_000)]
    request = head(wire, "GET", "/health", "Connection: close", *lines) + b"\r\n"
    await refused(wire, "a thousand headers", request)


@headers("a URL of 60,000 bytes is refused")
async def _url(wire: Wire) -> None:
    request = head(wire, "GET", "/health?" + "x" * 60_000, "Connection: close") + b"\r\n"
    await refused(wire, "a long URL", request)


@headers("a chunk's extension and a trailer without an end are refused")
async def _chunks(wire: Wire) -> None:
    lines = ("Transfer-Encoding: chunked", "Content-Type: application/json")
    start = head(wire, "POST", "/reset", *lines) + b"\r\n"
    await refused(wire, "an endless extension of a chunk", start, b"1;", *ENDLESS)
    await refused(wire, "an endless trailer", start, b"0\r\nX-Long: ", *ENDLESS)


@headers("connections without a whole head are closed, and cost others nothing")
async def _half_sent(wire: Wire) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(wire)) for _ in range(HALF_SENT)]
        for number, connection in enumerate(held):
            if number % 11:  # of the others not even a byte is sent
                connection.sendall(head(wire, "GET", "/health") + b"X-Half: ")
            connection.setblocking(False)
        end = time.monotonic() + CLOSE_S
        while held and time.monotonic() < end:
            await wire.get("/health")
            await asyncio.sleep(0.5)
            held = [connection for connection in held if not ended(connection)]
    expect(not held, f"{len(held)} connections were open after {CLOSE_S:g} s")


def ended(connection: socket.socket) -> bool:
    """Read what has come; return whether the server closed the connection."""
    try:
        while connection.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True
