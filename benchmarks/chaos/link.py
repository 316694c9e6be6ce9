"""A TCP link between a client and one server that can be cut, fall silent or lose replies."""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from enum import StrEnum
from typing import Any

HOST = "127.0.0.1"
CHUNK_BYTES = 64 * 1024


class State(StrEnum):
    OPEN = "open"
    CUT = "cut"  # connections are reset, and new ones are not answered
    # data arrives once the link is open again, as on a network that drops and retransmits packets
    SILENT = "silent"


class Link:
    """Listens on `port` and passes everything to `target_port`, in a thread. Use it in `with`."""

    def __init__(self, target_port: int) -> None:
        self.target_port, self.port = target_port, 0
        self._state = State.OPEN
        self._replies_to_lose = 0
        self._connections: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)

    def __enter__(self) -> "Link":
        self._thread.start()
        self._call(self._open()).result()
        return self

    def __exit__(self, *error: object) -> None:
        self._call(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def set(self, state: State) -> None:
        """Change the state at once, for connections that are open too."""
        self._call(self._set(state)).result()

    def lose_replies(self, count: int) -> None:
        """Drop the next `count` replies with their connections; the server has done its work."""
        self._replies_to_lose = count

    def _call(self, work: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _open(self) -> None:
        self._opened = asyncio.Event()
        self._opened.set()
        self._server = await asyncio.start_server(self._connected, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        await self._set(State.CUT)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set(self, state: State) -> None:
        self._state = state
        if state is State.SILENT:
            self._opened.clear()
        else:
            self._opened.set()
        if state is State.CUT:
            for writer in list(self._connections):
                writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state is State.CUT:
            writer.transport.abort()
            return
        self._connections.add(writer)
        try:
            await self._opened.wait()
            server_reader, server_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:  # the server is down
            self._drop(writer)
            return
        self._connections.add(server_writer)
        pumps = [
            asyncio.ensure_future(self._pump(reader, server_writer, replies=False)),
            asyncio.ensure_future(self._pump(server_reader, writer, replies=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._drop(writer, server_writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._opened.wait()
                if replies and self._replies_to_lose > 0:
                    self._replies_to_lose -= 1
                    return
                writer.write(data)
                await writer.drain()

    def _drop(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            self._connections.discard(writer)
            writer.transport.abort()
