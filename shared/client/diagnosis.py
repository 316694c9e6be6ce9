"""Why a server can't be reached, in words, and whether its URL can ever work."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import suppress

import httpx

PROBE_S = 2.0  # of a handshake that shows whether a server speaks https
# what TLS makes of bytes that are not TLS
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"}


def reason_of(error: BaseException) -> str:
    """Return the system's words for an error of a connection, else its own."""
    for cause in causes(error):
        if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
            words = os.strerror(cause.errno or 0) if (cause.errno or 0) > 0 else cause.strerror
            if cause.errno and words:
                return words.lower()
    return f"{type(error).__name__}: {error}".removesuffix(": ")


async def fault_of(url: str, error: BaseException) -> str | None:
    """Return what is wrong with a server's URL, with the remedy; None if the server may answer
    there later."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            problem = f"its certificate can't be verified: {cause.verify_message.rstrip('.')}"
            return f"{problem}; name the authority's certificate (a PEM file) in SSL_CERT_FILE"
        if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
            return "what answers does not speak https; write http://"
    broken = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
    if broken and url.startswith("http://"):
        parsed = httpx.URL(url)
        if await _speaks_tls(parsed.host, parsed.port or 80):
            return "what answers speaks https; write https://"
        if await _answer(parsed.host, parsed.port or 80) not in (b"", b"HTTP"):
            return "what answers does not speak HTTP; correct the host or the port"
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


async def _speaks_tls(host: str, port: int) -> bool:
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=anything)
            writer.close()
            return True
    return False


async def _answer(host: str, port: int) -> bytes:
    """Return the first bytes of the answer to a request."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read(4)
            writer.close()
            return answer
    return b""
