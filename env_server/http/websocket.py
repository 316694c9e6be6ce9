"""Uvicorn's WebSocket protocol with limits on what a connection may send, hold and wait for.

`protocol.Protocol` hands over a connection when its request asks for it. Needs websockets.
"""

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from env_server.http.auth import SENT_KEY
from env_server.http.connections import Connections, abort_unless_read
from env_server.http.requests import MAX_STEP_BYTES

MAX_FRAGMENTS = 1000  # of a message; empty ones cost no bytes of it
TRY_AGAIN_LATER, TOO_BIG, POLICY_VIOLATION = 1013, 1009, 1008
# No pings: a client that generates text for minutes may not answer, and idle ones are closed.
SOCKET_OPTIONS: dict[str, Any] = {
    "ws_max_size": MAX_STEP_BYTES,
    "ws_per_message_deflate": False,  # a small frame could become a large one
    "ws_ping_interval": None,
}


class Socket(WebSocketsSansIOProtocol):
    """One WebSocket. It gives way to newer ones: its episode can be continued on another."""

    def __init__(self, shared: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.shared = shared
        self.address, self.known, self.body_bytes = "", False, 0
        self.app_state = self.app_state | {SENT_KEY: partial(shared.sent_key, self)}
        self.send_timer: asyncio.TimerHandle | None = None
        self.body_timer: asyncio.TimerHandle | None = None  # of a message that has begun
        self.owed = 0  # replies to messages
        self.stopping = False  # it closes after the replies that are owed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.shared.opened(self)
        self.shared.idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._hold(0)
        self.shared.closed(self)
        if self.send_timer is not None:
            self.send_timer.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close after the replies that are owed, unless the peer does not read them."""
        self.stopping = True
        if not (self.owed or self.transport.is_closing()):
            super().shutdown()
        abort_unless_read(self.transport)

    def data_received(self, data: bytes) -> None:
        if self.shared.idle.pop(self, "") is None:  # those that were used last give way last
            self.shared.idle[self] = None
        super().data_received(data)
        if not (self.owed or self.transport.is_closing()):  # it is not read while a reply is owed
            self._hold(len(self.conn.reader.buffer) + sum(map(len, self.frames)))
        if self.shared.body_bytes > self.shared.settings.max_unfinished_bytes:
            self.shared.shed()

    def _hold(self, body_bytes: int) -> None:
        """Count the bytes of the message that has begun, and give it a time to arrive."""
        self.shared.body_bytes += body_bytes - self.body_bytes
        self.body_bytes, timeout_s = body_bytes, self.shared.settings.body_timeout_s
        if self.body_timer is not None and not body_bytes:
            self.body_timer.cancel()
            self.body_timer = None
        elif self.body_timer is None and body_bytes:
            late = f"the message did not arrive within {timeout_s:g} s"
            self.body_timer = self.loop.call_later(timeout_s, self._fail, POLICY_VIOLATION, late)

    def send_receive_event_to_app(self) -> None:
        if not self.close_sent:
            self.owed += 1
            self._hold(0)
            self.shared.idle.pop(self, None)
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] in ("websocket.send", "websocket.close"):
            self.owed = self.owed - 1 if message["type"] == "websocket.send" else 0
            if self.stopping:
                self.shutdown()
            elif not (self.owed or self.transport.is_closing()):
                self.shared.idle[self] = None

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= MAX_FRAGMENTS:
            self._fail(TOO_BIG, f"a message of over {MAX_FRAGMENTS:,} fragments")
        else:
            super().handle_cont(event)

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:  # of the handshake
            self.transport.abort()
        else:
            super().handle_parser_exception()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.shared.unread[self] = None
        timeout_s = self.shared.settings.send_timeout_s
        self.send_timer = self.loop.call_later(timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.shared.unread.pop(self, None)
        if self.send_timer is not None:
            self.send_timer.cancel()

    def evict(self, message: str) -> None:
        self.shared.forget(self)
        self._hold(0)
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        self._fail(TRY_AGAIN_LATER, message)

    def _fail(self, code: int, reason: str) -> None:
        if self.handshake_complete and not self.close_sent:
            self.conn.fail(code, reason)
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = self.disconnected = True  # nothing can be sent from now on
        self.transport.close()
        abort_unless_read(self.transport)
