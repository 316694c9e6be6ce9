"""Uvicorn's HTTP protocol with limits on what a connection may send, hold and wait for.

llhttp gathers a header until its end, so bytes are counted before they reach it, in slices; what a
request has beside its body (request line, headers, chunk sizes and extensions, trailers) shares one
limit. Of pipelined requests one is parsed at a time, apart from what one slice holds.
"""

import asyncio
from functools import partial
from http import HTTPStatus
from typing import Any, Literal

import httptools
from pydantic_core import to_json
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from env_server.http.auth import SENT_KEY
from env_server.http.connections import Connections, abort_unless_read
from env_server.http.openenv import SOCKET
from env_server.http.responses import http_code, http_error_bytes
from shared.errors import NotReady

# a slice holds at most 227 requests, which are parsed in 10 ms
SLICE_BYTES = 4096
# After a refusal, what the peer still sends is read and dropped for this long: closing at once
# would reset the connection, and with it the reply on its way.
LINGER_S = 1.0
MAX_HEADERS = 100  # a client sends 8, gateways add some


class Refusal(Exception):
    """The connection ends with this reply."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.code, self.headers = status, http_code(status), ""
        self.body = http_error_bytes(status, message)


class Overloaded(Refusal):
    """The connection ends because the server has too many, or too much to hold."""

    def __init__(self, message: str) -> None:
        self.status, self.code, self.headers = NotReady.status, NotReady.code, "retry-after: 1\r\n"
        self.body = to_json(NotReady(message, retry_after_s=1).to_wire())


class Flow(FlowControl):
    """Uvicorn's flow control, which reads no more while the protocol has a slice to parse.

    It reads on with less, since only a connection that is read shows that its peer has left.
    """

    def __init__(self, protocol: "Protocol") -> None:
        super().__init__(protocol.transport)
        self.protocol = protocol

    def resume_reading(self) -> None:
        if len(self.protocol.unread) <= SLICE_BYTES:
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """One connection of HTTP, which hands a WebSocket over to `Socket`."""

    def __init__(self, shared: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.shared, self.settings = shared, shared.settings
        self.address, self.known = "", False
        self.app_state = self.app_state | {SENT_KEY: partial(shared.sent_key, self)}
        self.stage: Literal["between", "head", "body"] = "between"  # the parser's place in requests
        self.unread = bytearray()  # received and not yet parsed
        self.overhead = 0  # bytes of the current request so far, without its body's
        self.body_bytes = 0  # of the current request's body so far, unless nobody reads it
        self.length: int | None = None  # of its body; None if its head gives none
        self.received = 0  # bytes of its body
        self.skip = 0  # bytes of its body that are still to come, and to be dropped
        self.refusal: Refusal | None = None  # once set, what the peer sends is dropped
        self.head_timer: asyncio.TimerHandle | None = None
        self.send_timer: asyncio.TimerHandle | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a request, whose body may still be arriving, has not been answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def owes(self) -> bool:
        """Whether it owes replies to requests before the one that is arriving."""
        return bool(self.pipeline) or (self.in_flight and self.stage != "body")

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(self)
        self.address = self.client[0] if self.client else ""
        self.shared.opened(self)
        self.shared.unfinished[self] = None
        self._start_head_timer()
        if len(self.connections) > self.shared.max_open:
            self.shared.make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self.head_timer, self.send_timer):
            if timer is not None:
                timer.cancel()
        self._release()
        self._unset_keepalive_if_required()  # uvicorn does it only for a peer that closed in order
        self.shared.closed(self)
        self.unread.clear()
        super().connection_lost(exc)

    def evict(self, message: str) -> None:
        """Close the connection now, with an error unless it is idle."""
        idle = self in self.shared.idle
        self.shared.forget(self)
        closing = self.refusal is not None or self.transport.is_closing()
        if closing or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        if not idle:
            self._refuse(Overloaded(message))
        if not self.owes:
            self.transport.close()

    def _start_head_timer(self) -> None:
        self._unset_keepalive_if_required()
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(self.settings.head_timeout_s, self._late)

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _late(self) -> None:
        if self.stage == "between" and not self.overhead:
            self.transport.close()  # a new connection that sent nothing
        else:
            seconds = f"{self.settings.head_timeout_s:g} s"
            self._refuse(Refusal(408, f"the request's head did not arrive within {seconds}"))

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also one whose peer does not read its reply."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """Close when the replies that are owed were sent, unless the peer does not read them."""
        super().shutdown()
        abort_unless_read(self.transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.shared.unread[self] = None
        self.send_timer = self.loop.call_later(self.settings.send_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.shared.unread.pop(self, None)
        if self.send_timer is not None:
            self.send_timer.cancel()

    # Bytes

    def data_received(self, data: bytes) -> None:
        if self.refusal is None:
            self.unread += data
            if self.skip:
                self._skip()
            if not self.skip:
                self._parse()

    def _skip(self) -> None:
        """Drop the rest of a body whose reply was sent, without the parser, which takes longer."""
        dropped = min(self.skip, len(self.unread))
        del self.unread[:dropped]
        self.skip -= dropped
        if not self.skip:
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self.on_message_complete()

    def _parse(self) -> None:
        """Parse what was received, unless replies are owed for what was parsed."""
        try:
            while self.unread and not self.pipeline and not self.transport.is_closing():
                if self.stage == "between" and self.in_flight:
                    break
                self._parse_slice()
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if len(self.unread) > SLICE_BYTES:
            self.flow.pause_reading()
        if self.stage == "head" and not self.in_flight:
            self._start_head_timer()

    def _parse_slice(self) -> None:
        """Parse the next `SLICE_BYTES`, and raise `Refusal` if they pass a limit."""
        piece = bytes(self.unread[:SLICE_BYTES])
        del self.unread[:SLICE_BYTES]
        self.overhead += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self.unread[:0] = piece[upgrade.args[0] :]
            if self._should_upgrade():  # others are ignored, as HTTP allows
                self.handle_websocket_upgrade()
        except httptools.HttpParserError as error:
            cause = error.__context__
            raise (
                cause if isinstance(cause, Refusal) else Refusal(400, f"not HTTP: {error}")
            ) from None
        if self.overhead > self.settings.max_head_bytes:
            limit = f"{self.settings.max_head_bytes:,} bytes, the limit (SQLENV_MAX_HEAD_BYTES)"
            if self.stage == "body":
                raise Refusal(400, f"the framing of the body's chunks is over {limit}")
            raise Refusal(431, f"the request's head is over {limit}")
        if self.shared.body_bytes > self.settings.max_unfinished_bytes:
            self.shared.shed()

    def _should_upgrade(self) -> bool:
        wanted = self.parser.get_method() == b"GET" and self.url.split(b"?")[0] == SOCKET.encode()
        return wanted and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to the WebSocket protocol, with what it has sent already."""
        if self.in_flight:
            raise Refusal(400, "an upgrade is pipelined: wait for the replies before it")
        self._stop_head_timer()
        self.shared.closed(self)
        early, self.unread = bytes(self.unread), bytearray()
        self.flow.resume_reading()
        super().handle_websocket_upgrade()
        if early:
            self.transport.get_protocol().data_received(early)  # type: ignore[attr-defined]

    def _refuse(self, refusal: Refusal) -> None:
        """Send a reply of our own after those that are owed, and close."""
        self.refusal = refusal
        self.unread.clear()
        self._release()
        self._stop_head_timer()
        if self.owes:
            return  # `on_response_complete` calls this again
        began = self.cycle is not None and self.stage == "body" and self.cycle.response_started
        if self.in_flight:  # the one whose body is refused; its endpoint sees a disconnect
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        code = HTTPStatus(refusal.status)
        if not began:
            head = (
                f"HTTP/1.1 {code.value} {code.phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(refusal.body)}\r\n{refusal.headers}connection: close\r\n\r\n"
            )
            self.shared.metrics.errors.labels(refusal.code).inc()
            self.transport.write(head.encode() + refusal.body)
        self.transport.write_eof()
        self.flow.resume_reading()
        self.head_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    # Parser

    def on_message_begin(self) -> None:
        self.stage = "head"
        self._unset_keepalive_if_required()
        self.shared.idle.pop(self, None)
        self.shared.unfinished[self] = None
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage == "body":
            return  # a trailer: no header, and seen by no gateway
        if len(self.headers) >= MAX_HEADERS:
            raise Refusal(431, f"the request has over {MAX_HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade() and {b"content-length", b"transfer-encoding"} & {
            name for name, _ in self.headers
        }:  # httptools would take the body for the next request
            raise Refusal(400, "a request with a body can't be upgraded: send it without Upgrade")
        super().on_headers_complete()  # raises for a URL without a path
        self.stage, self.received = "body", 0
        lengths = [int(value) for name, value in self.headers if name == b"content-length"]
        self.length = lengths[0] if lengths else None
        self._stop_head_timer()

    def on_body(self, body: bytes) -> None:
        self.overhead -= len(body)
        self.received += len(body)
        if not self.cycle.response_complete:
            self.body_bytes += len(body)
            self.shared.body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.stage, self.overhead = "between", 0
        self._release()
        self.shared.unfinished.pop(self, None)
        if not self.in_flight:
            self.shared.idle[self] = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._release()
        if not self.in_flight:
            self.cycle.body.clear()  # of a request that was answered without reading it
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():  # the peer may never read the rest
                self.shared.unread[self] = None
                self.loop.call_later(self.settings.send_timeout_s, self.transport.abort)
            return
        if self.refusal is not None:
            self._refuse(self.refusal)
            return
        if self.stage == "body" and not self.in_flight and self.length is not None:
            self.skip = self.length - self.received
            self._skip()
        elif self.stage == "between" and not self.in_flight:
            self.shared.idle[self] = None
        self._parse()
        self.flow.resume_reading()

    def _release(self) -> None:
        """Count the current request's body no longer: it is complete, or nobody will read it."""
        self.shared.body_bytes -= self.body_bytes
        self.body_bytes = 0
